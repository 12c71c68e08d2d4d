#pragma once
// Launches of one kernel on several queues, one after the other.
#include <moecl/event.hpp>

#include <deque>

namespace moecl {

/// Each launch waits for the one before. A failed launch may end before those it waited for, so all are kept.
/// Threads: one at a time.
class LaunchTurns {
 public:
  /// The event that the next launch waits for: with it all launches so far have ended. Null: nothing is in flight.
  /// Errors: device_error
  _cl_event* before();
  /// Where the next launch's event goes.
  Event& next() { return launches_.emplace_back(); }

 private:
  std::deque<Event> launches_;
};

}  // namespace moecl
