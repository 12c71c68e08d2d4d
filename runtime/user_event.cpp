#include "runtime/user_event.hpp"

#include <moecl/context.hpp>

#include <CL/cl.h>

#include "runtime/check.hpp"

namespace moecl {

UserEvent::UserEvent(Context& context) {
  cl_int status = CL_SUCCESS;
  event_ = Event(clCreateUserEvent(context.handle(), &status));
  check_cl(status, "clCreateUserEvent");
}

void UserEvent::complete() noexcept {
  if (!completed_.exchange(true)) clSetUserEventStatus(event_.handle(), CL_COMPLETE);
}

}  // namespace moecl
