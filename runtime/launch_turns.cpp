#include "runtime/launch_turns.hpp"

#include <CL/cl.h>

#include <algorithm>

#include "runtime/check.hpp"

namespace moecl {
namespace {

/// Not once it failed: what waits for a failed command fails too, but another queue's is not its business.
bool in_flight(const Event& event) {
  if (event.handle() == nullptr) return false;
  cl_int status = CL_COMPLETE;
  check_cl(clGetEventInfo(event.handle(), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, nullptr),
           "clGetEventInfo");
  return status > CL_COMPLETE;
}

}  // namespace

cl_event LaunchTurns::before() {
  while (!launches_.empty() && !in_flight(launches_.front())) launches_.pop_front();
  const auto last = std::find_if(launches_.rbegin(), launches_.rend(), in_flight);
  return last != launches_.rend() ? last->handle() : nullptr;
}

}  // namespace moecl
