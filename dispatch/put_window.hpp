#pragma once
// A window that kernels of all ranks store into and signal through, where every pair has peers' memory.
#include <moecl/window_put.hpp>

#include <array>

#include "dispatch/exchange.hpp"
#include "runtime/pinned_memory.hpp"

namespace moecl {

/// Two halves of every rank's memory take turns, one a step. A rank that puts into a half has seen all signals of the
/// step before, and whoever gave one had by then been given what used that half two steps ago; so nobody says that a
/// half is free.
///
/// All ranks use it in the same order, on the queue of their exchanges. Errors, Threads: as Communicator.
/// Lifetime: the group outlives it; the queue is done with it.
class PutWindow {
 public:
  /// Why the ranks cannot have one; empty when they can.
  static std::string reject(const Communicator& ranks);
  /// Of a half.
  static std::uint64_t max_bytes(const Communicator& ranks);
  /// Where the caller's part of a half begins: after the signals.
  static std::uint64_t begin(std::int32_t ranks) { return (static_cast<std::uint64_t>(ranks) * 4 + 255) / 256 * 256; }

  /// By all ranks, with the same size. Zeroed. Stops the host.
  /// Errors: invalid_argument  the sizes disagree, or more than max_bytes; out_of_memory
  PutWindow(const Communicator& ranks, std::uint64_t half_bytes);

  std::uint64_t half_bytes() const noexcept { return half_bytes_; }
  /// Begins a step. Errors: deadline_exceeded  a rank did not signal an earlier one in time, as far as is known yet
  void next();
  /// What the kernel of this step is told; the caller says what stands where.
  window_put::Windows windows() const;
  /// This rank's half of this step.
  BufferView memory() const;
  /// After that kernel: what the exchanges are given next sees what every rank has put in this step.
  /// @param bytes_of  a peer, what the counter of bytes received from it is told
  template <class BytesOf>
  void arrive(const BytesOf& bytes_of) {
    arrive();
    const Communicator::Exchange exchange(ranks_);
    for (std::int32_t peer = 0; peer < ranks_.size(); ++peer)
      if (peer != ranks_.rank()) exchange.count_received(peer, bytes_of(peer));
  }

 private:
  using Half = std::vector<std::shared_ptr<const Buffer>>;  ///< [ranks], each as this one sees it
  /// On the device, for the signals of other ranks; else events order the kernels.
  bool kernels_wait() const;
  void arrive();
  Half agree(const Communicator::Exchange& exchange) const;
  /// The half that this step uses.
  std::size_t half() const noexcept { return static_cast<std::size_t>(step_) % 2; }

  Communicator ranks_;
  std::uint64_t half_bytes_;
  std::array<Half, 2> halves_;
  Buffer words_;  ///< of the tensors that follow
  std::array<TensorView, 2> addresses_;
  TensorView late_;
  std::unique_ptr<PinnedMemory> known_late_;  ///< late_ as it was some steps ago
  std::int32_t step_ = 0;
};

}  // namespace moecl
