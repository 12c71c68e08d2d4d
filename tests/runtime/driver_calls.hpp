#pragma once
// Intercepts OpenCL calls between the library and the driver.
#include <moecl/cl_handles.hpp>

#include <functional>
#include <string_view>

namespace moecl::test {

/// While it lives, runs a test's action before some OpenCL calls. Only one object may live at a time. If the action
/// returns another status than CL_SUCCESS, that is the call's status, and the call is not made.
///
/// The calls are clEnqueueCopyBuffer (`memory`: the source), clGetMemObjectInfo and clSetUserEventStatus (`memory`:
/// null).
/// Threads: the action runs in the thread of the call.
class BeforeDriverCalls {
 public:
  using Action = std::function<int(std::string_view name, _cl_mem* memory)>;
  explicit BeforeDriverCalls(Action action);
  ~BeforeDriverCalls();
  BeforeDriverCalls(const BeforeDriverCalls&) = delete;
  BeforeDriverCalls& operator=(const BeforeDriverCalls&) = delete;
};

}  // namespace moecl::test
