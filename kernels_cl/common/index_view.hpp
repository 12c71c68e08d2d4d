#pragma once
// Checks of int32 vectors, and the launch of one work-item per index, for all routing operators.
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

/// The first reason that is not empty; empty when all are.
inline std::string first_of(std::initializer_list<std::string> reasons) {
  for (const std::string& reason : reasons)
    if (!reason.empty()) return reason;
  return {};
}

inline std::int32_t int_of(std::int64_t count) { return static_cast<std::int32_t>(count); }

inline constexpr std::size_t index_group_size = 64;
/// The most indices for which a kernel can count the work-items in an int, with the spare ones of the last work-group.
inline constexpr std::int64_t most_indices = std::numeric_limits<std::int32_t>::max() - std::int64_t{index_group_size};

/// Launches kernel `<source>_<variant>` with one work-item per element. The last operand is the kernel's struct of
/// arguments, whose member `count` is the number of elements.
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
