#include "tests/runtime/driver_calls.hpp"

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <dlfcn.h>
#include <memory>
#include <mutex>

namespace moecl::test {
namespace {

struct Current {
  std::mutex mutex;
  std::shared_ptr<const BeforeDriverCalls::Action> action;
};

Current& current() {
  static auto* current = new Current;  // outlives drivers that call at exit
  return *current;
}

void set(std::shared_ptr<const BeforeDriverCalls::Action> action) {
  const std::lock_guard lock(current().mutex);
  current().action = std::move(action);
}

cl_int before(const char* name, cl_mem memory) {
  std::shared_ptr<const BeforeDriverCalls::Action> action;
  {
    const std::lock_guard lock(current().mutex);
    action = current().action;
  }
  return action == nullptr ? CL_SUCCESS : (*action)(name, memory);
}

/// The ICD loader's function of that name, which this program's own function hides.
template <class Function>
Function* behind(Function*, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}
#define MOECL_BEHIND(function) behind(&function, #function)

}  // namespace

BeforeDriverCalls::BeforeDriverCalls(Action action) { set(std::make_shared<const Action>(std::move(action))); }
BeforeDriverCalls::~BeforeDriverCalls() { set(nullptr); }

}  // namespace moecl::test

using moecl::test::before;
using moecl::test::behind;

extern "C" {

cl_int clEnqueueCopyBuffer(cl_command_queue queue, cl_mem from, cl_mem to, size_t from_offset, size_t to_offset,
                           size_t size, cl_uint count, const cl_event* wait, cl_event* event) {
  static const auto next = MOECL_BEHIND(clEnqueueCopyBuffer);
  const cl_int status = before("clEnqueueCopyBuffer", from);
  return status != CL_SUCCESS ? status : next(queue, from, to, from_offset, to_offset, size, count, wait, event);
}

cl_int clGetMemObjectInfo(cl_mem memory, cl_mem_info what, size_t size, void* value, size_t* size_out) {
  static const auto next = MOECL_BEHIND(clGetMemObjectInfo);
  const cl_int status = before("clGetMemObjectInfo", memory);
  return status != CL_SUCCESS ? status : next(memory, what, size, value, size_out);
}

cl_int clSetUserEventStatus(cl_event event, cl_int to) {
  static const auto next = MOECL_BEHIND(clSetUserEventStatus);
  const cl_int status = before("clSetUserEventStatus", nullptr);
  return status != CL_SUCCESS ? status : next(event, to);
}

}  // extern "C"
