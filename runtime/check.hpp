#pragma once
// How moecl reports failure: `require` before anything is enqueued, `check_cl` after every OpenCL call.
#include <moecl/error.hpp>

#include <fmt/format.h>

#include <concepts>
#include <string>

namespace moecl {

/// A type that describes itself, such as a tensor.
template <class T>
concept Describable = requires(const T& value) {
  { value.describe() } -> std::same_as<std::string>;
};

}  // namespace moecl

/// Calls `describe` only when a message is formatted: most requirements of tensors hold.
template <moecl::Describable T>
struct fmt::formatter<T> : formatter<std::string> {
  auto format(const T& value, format_context& context) const {
    return formatter<std::string>::format(value.describe(), context);
  }
};

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
/// Throws for a `status` that is not CL_SUCCESS: out_of_memory for CL_MEM_OBJECT_ALLOCATION_FAILURE,
/// CL_OUT_OF_RESOURCES and CL_OUT_OF_HOST_MEMORY, wherever they surface (drivers may allocate as late as the first
/// command that uses a buffer), else device_error. `what` names the call.
[[noreturn]] void throw_cl(int status, const std::string& what);

template <class... Args>
[[noreturn]] void fail_cl(int status, fmt::format_string<Args...> what, Args&&... args) {
  throw_cl(status, fmt::format(what, std::forward<Args>(args)...));
}

/// Errors: as `throw_cl`
inline void check_cl(int status, const char* what) {
  if (status != 0) throw_cl(status, what);
}

}  // namespace moecl
