#pragma once
// Copies the experts of a wave on a queue of its own, while the products of the previous wave run.
#include <array>
#include <optional>

#include "dispatch/stream_events.hpp"

namespace moecl {

class WaveCopies {
 public:
  /// @param copies  Another queue of the device. It first waits for all commands enqueued on `stream` so far
  WaveCopies(StreamView stream, StreamView copies) : stream_(stream), copies_(copies) {
    copies_.compiles_only = stream.compiles_only;
    enqueue_wait(copies_, enqueue_record(stream_));
  }

  /// Enqueues copies to one of two halves, after the products that read that half. The stream waits for the copies.
  /// Async: two markers on each queue
  template <class Enqueue>
  void bring(std::size_t half, const Enqueue& enqueue) {
    if (last_) read_[*last_] = enqueue_record(stream_);
    enqueue_wait(copies_, read_[half]);
    enqueue(copies_);
    enqueue_wait(stream_, enqueue_record(copies_));
    last_ = half;
  }

 private:
  StreamView stream_, copies_;
  std::array<Event, 2> read_;        ///< of each half: the end of the products that read it
  std::optional<std::size_t> last_;  ///< the half that was filled last
};

}  // namespace moecl
