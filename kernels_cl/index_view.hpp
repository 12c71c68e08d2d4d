#pragma once
// Checks of int32 vectors that the routing operators make the same way.
#include <moecl/tensor_view.hpp>

#include <fmt/format.h>

#include <string>

namespace moecl {

/// Why `view` is not contiguous i32[count]; empty when it is.
inline std::string reject_indices(const char* what, const TensorView& view, std::int64_t count) {
  if (view.rank == 1 && view.dtype == DType::i32 && view.shape[0] == count && view.contiguous()) return {};
  return fmt::format("{}: expected i32[{}], got {}", what, count, view.describe());
}

/// As `reject_indices`, but an absent view is all right.
inline std::string reject_optional_indices(const char* what, const TensorView& view, std::int64_t count) {
  return view.present() ? reject_indices(what, view, count) : std::string();
}

}  // namespace moecl
