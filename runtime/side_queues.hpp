#pragma once
// The side queues of streams (StreamView::side).
#include <moecl/stream.hpp>

#include <map>
#include <mutex>

namespace moecl {

/// Threads: safe.
class SideQueues {
 public:
  /// The side queue of the stream. Makes one if there is none with the stream's tracing. Errors: as Stream
  StreamView of(StreamView stream);
  /// Call this when a stream of this queue is destroyed.
  void forget(_cl_command_queue* queue) noexcept;

 private:
  std::mutex mutex_;
  std::map<_cl_command_queue*, Stream> sides_;  ///< keyed by the stream's queue
};

}  // namespace moecl
