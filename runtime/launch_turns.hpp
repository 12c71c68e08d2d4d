#pragma once
// Launches of one kernel on several queues, one after the other.
#include <moecl/event.hpp>

#include <deque>

namespace moecl {

/// Each launch waits for the one before. One that fails may end before what it waited for, so those are kept too.
/// Threads: one at a time.
class LaunchTurns {
 public:
  /// What the next launch waits for: with it, all launches before it have ended. Null: nothing is in flight.
  /// Errors: device_error
  _cl_event* before();
  /// Where the next launch's event goes.
  Event& next() { return launches_.emplace_back(); }

 private:
  std::deque<Event> launches_;
};

}  // namespace moecl
