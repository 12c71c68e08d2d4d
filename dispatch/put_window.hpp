#pragma once
// A window into which kernels of all ranks store rows and signals. Every pair of ranks needs peer memory.
#include <moecl/window_put.hpp>

#include <array>

#include "dispatch/exchange.hpp"
#include "runtime/pinned_memory.hpp"

namespace moecl {

/// Every rank's memory has two halves, which alternate from step to step. A rank that puts into a half has seen all
/// signals of the previous step. Each peer that signalled had by then enqueued everything that used the half two steps
/// ago. So no message is needed to say that a half is free.
///
/// All ranks use it in the same order, on the queue of their exchanges. Errors, Threads: as Communicator.
/// Lifetime: the group outlives the window; its queue has finished with it.
class PutWindow {
 public:
  /// Why these ranks cannot have such a window; empty if they can.
  static std::string reject(const Communicator& ranks);
  /// The largest size of a half.
  static std::uint64_t max_bytes(const Communicator& ranks);
  /// Where the caller's part of a half begins: after the signals.
  static std::uint64_t begin(std::int32_t ranks) { return (static_cast<std::uint64_t>(ranks) * 4 + 255) / 256 * 256; }

  /// Collective: all ranks call it with the same size. The memory is zeroed. Stops the host.
  /// Errors: invalid_argument  the sizes disagree, or more than max_bytes; out_of_memory
  PutWindow(const Communicator& ranks, std::uint64_t half_bytes);

  std::uint64_t half_bytes() const noexcept { return half_bytes_; }
  /// Begins a step. Errors: deadline_exceeded  a rank did not signal an earlier step in time, as far as the host knows
  /// by now
  void next();
  /// Arguments for the kernel of this step; the caller adds the offsets within a half.
  window_put::Windows windows() const;
  /// This rank's memory: the half of this step.
  BufferView memory() const;
  /// Called after that kernel is enqueued: later commands of the exchanges' queue see what every rank has put in this
  /// step.
  /// @param bytes_of  returns for a peer the bytes to add to the counter of bytes received from it
  template <class BytesOf>
  void arrive(const BytesOf& bytes_of) {
    arrive();
    const Communicator::Exchange exchange(ranks_);
    for (std::int32_t peer = 0; peer < ranks_.size(); ++peer)
      if (peer != ranks_.rank()) exchange.count_received(peer, bytes_of(peer));
  }

 private:
  using Half = std::vector<std::shared_ptr<const Buffer>>;  ///< [ranks] memory of each, as this rank sees it
  /// Whether kernels wait on the device for the signals of other ranks; otherwise events order the kernels.
  bool kernels_wait() const;
  void arrive();
  Half agree(const Communicator::Exchange& exchange) const;
  /// The half that this step uses.
  std::size_t half() const noexcept { return static_cast<std::size_t>(step_) % 2; }

  Communicator ranks_;
  std::uint64_t half_bytes_;
  std::array<Half, 2> halves_;
  Buffer words_;  ///< memory of the next three tensors
  std::array<TensorView, 2> addresses_;
  TensorView late_;
  std::unique_ptr<PinnedMemory> known_late_;  ///< late_, as read some steps ago
  std::int32_t step_ = 0;
};

}  // namespace moecl
