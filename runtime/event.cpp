#include <moecl/event.hpp>

#include <CL/cl.h>

#include "runtime/check.hpp"
#include "runtime/driver_process.hpp"

namespace moecl {

Event::~Event() {
  if (handle_ != nullptr) clReleaseEvent(handle_);
}

void Event::wait() const {
  if (handle_ == nullptr) return;
  expect_driver_process();
  check_cl(clWaitForEvents(1, &handle_), "clWaitForEvents");
}

bool Event::is_complete() const {
  if (handle_ == nullptr) return true;
  cl_int status = CL_QUEUED;
  check_cl(clGetEventInfo(handle_, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, nullptr),
           "clGetEventInfo");
  if (status < 0) check_cl(status, "a command before this event");
  return status == CL_COMPLETE;
}

}  // namespace moecl
