#pragma once
// How bytes come from one rank to another: a class and a file for each kind.
#include <moecl/peer_memory.hpp>
#include <moecl/stream.hpp>
#include <moecl/transport_kind.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace moecl {

/// One kind of way from any rank to any other. Has no state of a pair.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual TransportKind kind() const noexcept = 0;
  /// Why that pair cannot have it; empty where it can. May stop the host.
  virtual std::string reject(StreamView from, StreamView to) const = 0;
  /// GB/s of the best of some copies, after which the bytes are compared; 0: other bytes arrived. Both streams are
  /// idle. Stops the host. Errors: device_error
  virtual double probe(StreamView from, StreamView to) const = 0;
  /// Whether the receiver's queue can wait for the sender's events: then it copies. Else a StagedCopier does.
  virtual bool shares_events() const noexcept { return false; }
  /// Whether the ranks are different processes: then bytes go by the group's Link.
  virtual bool between_processes() const noexcept { return false; }
  /// Memory of the receiver's device that the sender's kernels and copies reach; null: there is none.
  virtual PeerMemory* peer_memory() const noexcept { return nullptr; }
};

std::unique_ptr<const Transport> make_shared_context();
std::unique_ptr<const Transport> make_staged();
std::unique_ptr<const Transport> make_peer_window(std::shared_ptr<PeerMemory> memory);
std::unique_ptr<const Transport> make_shared_memory();
std::unique_ptr<const Transport> make_mpi();

/// All of them, in the order of TransportKind.
using Transports = std::vector<std::unique_ptr<const Transport>>;
Transports make_transports(std::shared_ptr<PeerMemory> peer_memory);

/// The one that a pair of one process gets: `wanted`, else by what it can have, by a check of the data and by time.
/// Both streams are idle. Stops the host. Errors: invalid_argument  `wanted` is not possible; device_error  none gives
/// the right bytes
TransportChoice choose_transport(const Transports& all, StreamView from, StreamView to,
                                 std::optional<TransportKind> wanted);

}  // namespace moecl
