#pragma once
// Orders the commands of several queues that use the same memory.
#include "dispatch/stream_events.hpp"

namespace moecl {

/// Users of the memory take turns, each on a queue of its own.
class QueueTurns {
 public:
  /// Commands that follow on the stream wait for the end of the last turn.
  void begin(StreamView stream) {
    if (stream.queue != last_queue_) enqueue_wait(stream, last_);
  }
  void end(StreamView stream) {
    if (stream.compiles_only) return;
    last_ = enqueue_record(stream), last_queue_ = stream.queue;
  }

 private:
  Event last_;
  _cl_command_queue* last_queue_ = nullptr;  ///< only compared; last_ keeps the queue alive
};

}  // namespace moecl
