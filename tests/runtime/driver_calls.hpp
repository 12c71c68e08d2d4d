#pragma once
// Stands between the library and the driver.
#include <moecl/cl_handles.hpp>

#include <functional>
#include <string_view>

namespace moecl::test {

/// What a test does before some calls of OpenCL while an object of this lives; no more than one may. What it gives
/// instead of CL_SUCCESS is the call's status, and the call is not made.
///
/// Stands before clEnqueueCopyBuffer (of the memory that is read), clGetMemObjectInfo and clSetUserEventStatus (of
/// none).
/// Threads: the calls' own.
class BeforeDriverCalls {
 public:
  using Action = std::function<int(std::string_view name, _cl_mem* memory)>;
  explicit BeforeDriverCalls(Action action);
  ~BeforeDriverCalls();
  BeforeDriverCalls(const BeforeDriverCalls&) = delete;
  BeforeDriverCalls& operator=(const BeforeDriverCalls&) = delete;
};

}  // namespace moecl::test
