#include "tests/runtime/blocking_calls.hpp"

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <dlfcn.h>
#include <mutex>

namespace moecl::test {
namespace {

struct Record {
  std::mutex mutex;
  std::vector<std::string> names;
};

Record& record() {
  static auto* record = new Record;  // outlives drivers that call at exit
  return *record;
}

void note(const char* name) {
  const std::lock_guard lock(record().mutex);
  record().names.emplace_back(name);
}

/// The ICD loader's function of that name, which this program's own function hides.
template <class Function>
Function* behind(Function*, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}
#define MOECL_BEHIND(function) behind(&function, #function)

}  // namespace

BlockingCalls::BlockingCalls() {
  const std::lock_guard lock(record().mutex);
  first_ = record().names.size();
}

std::vector<std::string> BlockingCalls::names() const {
  const std::lock_guard lock(record().mutex);
  return {record().names.begin() + static_cast<std::ptrdiff_t>(first_), record().names.end()};
}

}  // namespace moecl::test

using moecl::test::behind;
using moecl::test::note;

extern "C" {

cl_int clFinish(cl_command_queue queue) {
  static const auto next = MOECL_BEHIND(clFinish);
  note("clFinish");
  return next(queue);
}

cl_int clWaitForEvents(cl_uint count, const cl_event* events) {
  static const auto next = MOECL_BEHIND(clWaitForEvents);
  note("clWaitForEvents");
  return next(count, events);
}

cl_int clGetEventInfo(cl_event event, cl_event_info what, size_t size, void* value, size_t* size_out) {
  static const auto next = MOECL_BEHIND(clGetEventInfo);
  if (what == CL_EVENT_COMMAND_EXECUTION_STATUS) note("clGetEventInfo");
  return next(event, what, size, value, size_out);
}

cl_int clBuildProgram(cl_program program, cl_uint count, const cl_device_id* devices, const char* options,
                      void(CL_CALLBACK* notify)(cl_program, void*), void* user_data) {
  static const auto next = MOECL_BEHIND(clBuildProgram);
  if (notify == nullptr) note("clBuildProgram");
  return next(program, count, devices, options, notify, user_data);
}

cl_int clEnqueueReadBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset, size_t size,
                           void* to, cl_uint count, const cl_event* wait, cl_event* event) {
  static const auto next = MOECL_BEHIND(clEnqueueReadBuffer);
  if (blocking != CL_FALSE) note("clEnqueueReadBuffer");
  return next(queue, buffer, blocking, offset, size, to, count, wait, event);
}

cl_int clEnqueueWriteBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset, size_t size,
                            const void* from, cl_uint count, const cl_event* wait, cl_event* event) {
  static const auto next = MOECL_BEHIND(clEnqueueWriteBuffer);
  if (blocking != CL_FALSE) note("clEnqueueWriteBuffer");
  return next(queue, buffer, blocking, offset, size, from, count, wait, event);
}

cl_int clEnqueueReadBufferRect(cl_command_queue queue, cl_mem buffer, cl_bool blocking, const size_t* buffer_origin,
                               const size_t* host_origin, const size_t* region, size_t buffer_row, size_t buffer_slice,
                               size_t host_row, size_t host_slice, void* to, cl_uint count, const cl_event* wait,
                               cl_event* event) {
  static const auto next = MOECL_BEHIND(clEnqueueReadBufferRect);
  if (blocking != CL_FALSE) note("clEnqueueReadBufferRect");
  return next(queue, buffer, blocking, buffer_origin, host_origin, region, buffer_row, buffer_slice, host_row,
              host_slice, to, count, wait, event);
}

cl_int clEnqueueWriteBufferRect(cl_command_queue queue, cl_mem buffer, cl_bool blocking, const size_t* buffer_origin,
                                const size_t* host_origin, const size_t* region, size_t buffer_row, size_t buffer_slice,
                                size_t host_row, size_t host_slice, const void* from, cl_uint count,
                                const cl_event* wait, cl_event* event) {
  static const auto next = MOECL_BEHIND(clEnqueueWriteBufferRect);
  if (blocking != CL_FALSE) note("clEnqueueWriteBufferRect");
  return next(queue, buffer, blocking, buffer_origin, host_origin, region, buffer_row, buffer_slice, host_row,
              host_slice, from, count, wait, event);
}

void* clEnqueueMapBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, cl_map_flags flags, size_t offset,
                         size_t size, cl_uint count, const cl_event* wait, cl_event* event, cl_int* status) {
  static const auto next = MOECL_BEHIND(clEnqueueMapBuffer);
  if (blocking != CL_FALSE) note("clEnqueueMapBuffer");
  return next(queue, buffer, blocking, flags, offset, size, count, wait, event, status);
}

}  // extern "C"
