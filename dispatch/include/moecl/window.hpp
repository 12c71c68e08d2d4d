#pragma once
#include <moecl/communicator.hpp>

namespace moecl {

/// Memory of every rank that the others may put into; an offset means the same on all of them.
///
/// `fence`, which all ranks call, cuts time into epochs. In each a rank puts into the others' memory and uses what came
/// into its own before the last fence, in another place: two halves that take turns need one fence a step.
///
/// Errors, Threads: as Communicator. Lifetime: the group outlives the window; what is on its way needs no window.
class Window {
 public:
  /// By all ranks, with the same size. What the memory holds at first is undefined.
  /// Errors: invalid_argument  the sizes disagree; out_of_memory
  Window(const Communicator& ranks, std::uint64_t bytes);
  ~Window();
  Window(Window&&) noexcept;
  Window& operator=(Window&&) noexcept;

  /// This rank's own.
  BufferView memory() const;
  /// Copies `source` into the memory of `peer`. Puts of one epoch into the same bytes come in no order.
  ///
  /// Async:    after what this rank's stream holds, and what the peer's held at the last fence; waits for nobody.
  /// Lifetime: no command before the next fence changes `source`; it may be released once the call has returned
  /// Errors:   invalid_argument  no such rank, or the range leaves the window
  void put(std::int32_t peer, std::uint64_t offset, BufferView source);
  /// What this rank's stream gets from here on sees every rank's puts of the epoch that ends, and may change what this
  /// rank has put; puts of the next epoch come after what the stream holds by now.
  /// Async: waits for the peers' host threads, never for a device
  void fence();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moecl
