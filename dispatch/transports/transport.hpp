#pragma once
// Transports: how bytes travel from one rank to another. One class and one file for each kind.
#include <moecl/peer_memory.hpp>
#include <moecl/stream.hpp>
#include <moecl/transport_kind.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace moecl {

/// One kind of transport, for any two ranks. Has no state of a pair.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual TransportKind kind() const noexcept = 0;
  /// Why this pair of ranks cannot use it; empty if it can. May block the host.
  virtual std::string reject(StreamView from, StreamView to) const = 0;
  /// GB/s of the fastest of some copies, or 0 if wrong bytes arrived. Both streams are idle. Stops the host. Errors:
  /// device_error
  virtual double probe(StreamView from, StreamView to) const = 0;
  /// Whether the receiver's queue can wait for the sender's events. Then this queue copies; otherwise a StagedCopier
  /// does.
  virtual bool shares_events() const noexcept { return false; }
  /// Whether the ranks are in different processes. Then bytes travel by the group's Link.
  virtual bool between_processes() const noexcept { return false; }
  /// Memory of the receiver's device that the sender's kernels and copies can access; null: none.
  virtual PeerMemory* peer_memory() const noexcept { return nullptr; }
};

std::unique_ptr<const Transport> make_shared_context();
std::unique_ptr<const Transport> make_staged();
std::unique_ptr<const Transport> make_peer_window(std::shared_ptr<PeerMemory> memory);
std::unique_ptr<const Transport> make_shared_memory();
std::unique_ptr<const Transport> make_mpi();

/// All transports, in the order of TransportKind.
using Transports = std::vector<std::unique_ptr<const Transport>>;
Transports make_transports(std::shared_ptr<PeerMemory> peer_memory);

/// The transport of a pair in one process: `wanted` if it is set, otherwise by what is possible, by a check of the
/// bytes and by speed. Both streams are idle. Stops the host. Errors: invalid_argument  `wanted` is not possible;
/// device_error  no transport gives the right bytes
TransportChoice choose_transport(const Transports& all, StreamView from, StreamView to,
                                 std::optional<TransportKind> wanted);

}  // namespace moecl
