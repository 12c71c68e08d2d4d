#pragma once
// How moecl reports failure: `require` before anything is enqueued, `check_cl` after every OpenCL call.
#include <moecl/error.hpp>

#include <fmt/format.h>

namespace moecl {

template <class... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(code, fmt::format(text, std::forward<Args>(args)...));
}

template <class... Args>
void require(bool condition, fmt::format_string<Args...> text, Args&&... args) {
  if (!condition) fail(ErrorCode::invalid_argument, text, std::forward<Args>(args)...);
}

/// "CL_OUT_OF_RESOURCES (-5)"
std::string cl_status_text(int status);
/// Errors: out_of_memory or device_error when `status` is not CL_SUCCESS; `what` names the call.
void check_cl(int status, const char* what);

}  // namespace moecl
