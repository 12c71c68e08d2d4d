#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace moecl {

/// How bytes move between two ranks.
enum class TransportKind : std::uint8_t {
  shared_context,  ///< the receiver copies out of the sender's cl_mem, on its own queue
  staged,          ///< through pinned host memory, in chunks, by a thread of the receiver
  peer_window,     ///< into memory of the receiver's device that the sender's kernels reach, of another context
  shared_memory,   ///< ranks that are processes of one node: through memory that they share
  mpi              ///< ranks that are processes of MPI
};
/// "shared_context", "staged", "peer_window", "shared_memory", "mpi"
const char* name(TransportKind kind) noexcept;
/// All of them.
std::vector<TransportKind> transport_kinds();

/// How one rank receives from another, and why so.
struct TransportChoice {
  TransportKind kind = TransportKind::shared_context;
  std::string reason;  ///< "same context, 5.1 GB/s against 3.0 GB/s staged"
};

}  // namespace moecl
