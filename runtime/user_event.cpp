#include "runtime/user_event.hpp"

#include <moecl/context.hpp>

#include <CL/cl.h>

#include "runtime/check.hpp"

namespace moecl {

UserEvent::UserEvent(Context& context) : context_(context) {
  cl_int status = CL_SUCCESS;
  event_ = Event(clCreateUserEvent(context.handle(), &status));
  check_cl(status, "clCreateUserEvent");
  ++context_.counters().user_events_unset;
}

bool UserEvent::complete() noexcept {
  if (completed_.exchange(true)) return true;
  for (int attempt = 0; attempt < 2; ++attempt)  // a driver that lacked a resource may have it now
    if (clSetUserEventStatus(event_.handle(), CL_COMPLETE) == CL_SUCCESS) {
      --context_.counters().user_events_unset;
      return true;
    }
  ++context_.counters().user_events_refused;
  return false;  // not made to fail instead: PoCL 3.1 aborts the process when commands wait for an event that does
}

}  // namespace moecl
