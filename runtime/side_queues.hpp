#pragma once
// The queues beside those of streams (StreamView::side).
#include <moecl/stream.hpp>

#include <map>
#include <mutex>

namespace moecl {

/// Threads: safe.
class SideQueues {
 public:
  /// That of the stream, made when there is none that is traced like it. Errors: as Stream
  StreamView of(StreamView stream);
  /// A stream of this queue goes.
  void forget(_cl_command_queue* queue) noexcept;

 private:
  std::mutex mutex_;
  std::map<_cl_command_queue*, Stream> sides_;  ///< by the stream's queue
};

}  // namespace moecl
