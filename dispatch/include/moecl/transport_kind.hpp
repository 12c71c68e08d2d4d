#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace moecl {

/// How bytes move between two ranks.
enum class TransportKind : std::uint8_t {
  shared_context,  ///< the receiver copies out of the sender's cl_mem, on its own queue
  staged,          ///< a thread of the receiver copies through pinned host memory, in chunks
  peer_window,     ///< different contexts: the sender's kernels store into memory of the receiver's device
  shared_memory,   ///< ranks are processes of one node that share memory
  mpi              ///< ranks are processes of MPI
};
/// "shared_context", "staged", "peer_window", "shared_memory", "mpi"
const char* name(TransportKind kind) noexcept;
/// All of them.
std::vector<TransportKind> transport_kinds();

/// The transport by which one rank receives from another, and why it was chosen.
struct TransportChoice {
  TransportKind kind = TransportKind::shared_context;
  std::string reason;  ///< "same context, 5.1 GB/s against 3.0 GB/s staged"
};

}  // namespace moecl
