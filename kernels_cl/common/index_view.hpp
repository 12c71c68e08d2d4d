#pragma once
// Checks of int32 vectors, and the launch of a work-item for each index, that the routing operators make the same way.
#include <moecl/tensor_view.hpp>

#include <fmt/format.h>

#include <cstring>
#include <initializer_list>
#include <limits>
#include <string>
#include <tuple>

#include "runtime/kernel.hpp"
#include "runtime/quotient.hpp"

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

/// The first that is not empty.
inline std::string first_of(std::initializer_list<std::string> reasons) {
  for (const std::string& reason : reasons)
    if (!reason.empty()) return reason;
  return {};
}

inline std::int32_t int_of(std::int64_t count) { return static_cast<std::int32_t>(count); }

inline constexpr std::size_t index_group_size = 64;
/// The most work-items that a kernel can count in an int, the spare ones of the last group among them.
inline constexpr std::int64_t most_indices = std::numeric_limits<std::int32_t>::max() - std::int64_t{index_group_size};

/// Launches kernel `<source>_<variant>` with one work-item for each of the `count` elements that the last operand, the
/// kernel's struct, says there are.
void launch_indices(StreamView stream, const ProgramSource& source, const char* kernel, const Submit& submit,
                    const TensorView& shaped_as, std::uint64_t bytes, const auto&... operands) {
  const auto& args = std::get<sizeof...(operands) - 1>(std::tie(operands...));
  const std::size_t groups = quotient_up(static_cast<std::size_t>(args.count), index_group_size);
  launch(stream, {&source, "", kernel}, {{groups * index_group_size, 1, 1}, {index_group_size, 1, 1}}, submit,
         {source.name, kernel + std::strlen(source.name) + 1,
          stream.trace != nullptr ? shaped_as.describe() : std::string(), bytes, 0},
         operands...);
}

}  // namespace moecl
