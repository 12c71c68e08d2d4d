#pragma once
// Commands of one queue after those of another.
#include "dispatch/stream_events.hpp"

namespace moecl {

/// Who uses memory in turn, each on a queue of his own.
class QueueTurns {
 public:
  /// What comes next on the stream has its turn after the last one.
  void begin(StreamView stream) {
    if (stream.queue != last_queue_) enqueue_wait(stream, last_);
  }
  void end(StreamView stream) {
    if (stream.compiles_only) return;
    last_ = enqueue_record(stream), last_queue_ = stream.queue;
  }

 private:
  Event last_;
  _cl_command_queue* last_queue_ = nullptr;  ///< to compare: the event keeps it
};

}  // namespace moecl
