#pragma once
#include <moecl/buffer.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace moecl {

/// Memory of one device into which kernels of other devices, in contexts of their own, store.
///
/// `driver_peer_memory` uses what the drivers offer; GroupOptions can give a group another implementation.
/// Threads: safe.
class PeerMemory {
 public:
  virtual ~PeerMemory() = default;
  /// Why kernels of `user` cannot store into memory of `owner`; empty where they can. May stop the host for a probe.
  virtual std::string reject(StreamView owner, StreamView user) = 0;
  /// Makes one allocation on the owner's device. Returns its buffer in the owner's context, then in each user's
  /// context.
  /// Errors: invalid_argument  more than `max_bytes`; unsupported, out_of_memory, device_error
  virtual std::vector<Buffer> allocate(StreamView owner, const std::vector<StreamView>& users,
                                       std::uint64_t size_bytes) = 0;
  /// Largest size of one allocation.
  virtual std::uint64_t max_bytes() const noexcept = 0;
  /// Whether a kernel may wait for a kernel of another rank. True only where both surely run at the same time.
  virtual bool kernels_may_wait() const noexcept = 0;
};

/// Peer memory of NVIDIA's drivers, between devices of one machine. Nothing is tried before the first `reject`. Then
/// one child process probes all pairs of the devices, so that a driver that crashes takes no other process with it.
std::shared_ptr<PeerMemory> driver_peer_memory(std::vector<StreamView> streams);

}  // namespace moecl
