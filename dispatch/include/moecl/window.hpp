#pragma once
#include <moecl/communicator.hpp>

namespace moecl {

/// Memory of every rank into which all ranks can put. An offset means the same on all ranks.
///
/// `fence`, which all ranks call, separates epochs. In an epoch a rank puts into the memory of others. In its own
/// memory it uses, at another offset, what arrived before the last fence. So two halves that alternate need one fence a
/// step.
///
/// Errors, Threads: as Communicator. Lifetime: the group outlives the window; puts under way do not need the window.
class Window {
 public:
  /// Collective: all ranks call it with the same size. The initial contents are undefined.
  /// Errors: invalid_argument  the sizes disagree; out_of_memory
  Window(const Communicator& ranks, std::uint64_t bytes);
  ~Window();
  Window(Window&&) noexcept;
  Window& operator=(Window&&) noexcept;

  /// This rank's own memory.
  BufferView memory() const;
  /// Copies `source` into the memory of `peer`. Puts of one epoch into the same bytes come in no order.
  ///
  /// Async:    runs after the commands of this rank's stream, and after those that the peer's stream held at the last
  ///           fence; the host waits for nobody.
  /// Lifetime: no command before the next fence changes `source`; it may be released once the call has returned
  /// Errors:   invalid_argument  no such rank, or the range exceeds the window
  void put(std::int32_t peer, std::uint64_t offset, BufferView source);
  /// Ends the epoch. Later commands of this rank's stream see every rank's puts of the epoch, and may change the
  /// sources of this rank's puts. Puts of the next epoch come after the commands that the stream holds now.
  /// Async: waits for the peers' host threads, never for a device
  void fence();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moecl
