#include "runtime/launch_turns.hpp"

#include <algorithm>

#include "runtime/completion_time.hpp"

namespace moecl {
namespace {

/// False once it failed: what waits for a failed command fails too, and other queues must not fail by it.
bool in_flight(const Event& event) { return event.handle() != nullptr && *watch_completion(event.handle()) == 0; }

}  // namespace

_cl_event* LaunchTurns::before() {
  while (!launches_.empty() && !in_flight(launches_.front())) launches_.pop_front();
  const auto last = std::find_if(launches_.rbegin(), launches_.rend(), in_flight);
  return last != launches_.rend() ? last->handle() : nullptr;
}

}  // namespace moecl
