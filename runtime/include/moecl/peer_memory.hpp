#pragma once
#include <moecl/buffer.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace moecl {

/// Memory of one device that the kernels of other devices, in contexts of their own, store into.
///
/// `driver_peer_memory` has what drivers offer; a group takes another one through GroupOptions.
/// Threads: safe.
class PeerMemory {
 public:
  virtual ~PeerMemory() = default;
  /// Why kernels of `user` cannot store into memory of `owner`; empty where they can. May stop the host for a probe.
  virtual std::string reject(StreamView owner, StreamView user) = 0;
  /// One allocation on the owner's device: as the owner sees it, then as each of `users` does, in their contexts.
  /// Errors: invalid_argument  more than `max_bytes`; unsupported, out_of_memory, device_error
  virtual std::vector<Buffer> allocate(StreamView owner, const std::vector<StreamView>& users,
                                       std::uint64_t size_bytes) = 0;
  /// Of one allocation.
  virtual std::uint64_t max_bytes() const noexcept = 0;
  /// Whether a kernel may wait for one of another rank: only where those surely run at the same time.
  virtual bool kernels_may_wait() const noexcept = 0;
};

/// What NVIDIA's drivers offer between devices in a machine. Nothing is tried before a pair is asked about; then one
/// child process tries all pairs of those devices, so that a driver that crashes takes no other process with it.
std::shared_ptr<PeerMemory> driver_peer_memory(std::vector<StreamView> streams);

}  // namespace moecl
