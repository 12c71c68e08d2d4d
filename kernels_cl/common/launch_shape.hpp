#pragma once
// Choices and checks that every row-wise operator makes the same way.
#include <moecl/device.hpp>
#include <moecl/tensor_view.hpp>
#include <moecl/tuned_choices.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string>

#include "kernels_cl/common/shared_codes.h"
#include "runtime/quotient.hpp"

namespace moecl {

/// The number of work-items that share a row: one with wide vectors on a CPU, neighbouring lanes on a GPU.
inline std::int32_t row_lanes(std::int32_t configured, const DeviceCaps& caps, std::int32_t on_gpu = 64) {
  if (configured != 0) return configured;
  return caps.type == DeviceType::cpu ? 1 : on_gpu;
}

/// As row_lanes, but where nothing is configured, the device's table of measurements may choose for the operator.
inline std::int32_t tuned_lanes(const char* op, std::int32_t configured, const Device& device,
                                std::int32_t on_gpu = 64) {
  const TunedChoice* tuned = configured == 0 ? tuning::find_lanes(device.tuning, op) : nullptr;
  return tuned != nullptr ? static_cast<std::int32_t>(tuned->value) : row_lanes(configured, device.caps, on_gpu);
}

/// Why that many lanes cannot share a row on the device; empty when they can.
inline std::string reject_lanes(std::int32_t lanes, const DeviceCaps& caps) {
  if (lanes >= 0 && static_cast<std::size_t>(lanes) <= caps.max_work_group_size) return {};
  return fmt::format("lanes: {} are outside [0, {}], the device's work-group limit", lanes, caps.max_work_group_size);
}

/// Why `row_ends` does not say which of `rows` rows are valid; empty when it does. When it is absent, all rows are.
inline std::string reject_row_ends(const TensorView& row_ends, std::int64_t rows_per_expert, std::int64_t rows) {
  if (row_ends.present() && (row_ends.rank != 1 || row_ends.dtype != DType::i32 || row_ends.shape[0] < 1))
    return fmt::format("row_ends: expected i32[E], got {}", row_ends.describe());
  if (rows_per_expert < 0) return fmt::format("rows_per_expert: {} is negative", rows_per_expert);
  if (rows_per_expert > 0 && !row_ends.present())
    return fmt::format("rows_per_expert: {} needs row_ends", rows_per_expert);
  if (rows_per_expert > 0 && (rows % rows_per_expert != 0 || rows / rows_per_expert != row_ends.shape[0]))
    return fmt::format("rows_per_expert: {} x {} experts does not give {} rows", rows_per_expert, row_ends.shape[0],
                       rows);
  return {};
}

/// Why an optional `view` does not have a value for each column; empty when it does. Shape: [width] or [1, width] for
/// all rows, or [experts, width] for the rows of each expert
inline std::string reject_column_values(const char* what, const TensorView& view, std::int64_t width,
                                        std::int64_t experts) {
  if (!view.present()) return {};
  const bool for_all = view.rank == 1 || (view.rank == 2 && view.shape[0] == 1);
  if ((for_all || (view.rank == 2 && view.shape[0] == experts)) && view.shape[view.rank == 1 ? 0 : 1] == width)
    return {};
  return fmt::format("{}: expected [{}] or [{}, {}] for the experts of row_ends, got {}", what, width, experts, width,
                     view.describe());
}

/// The stride from one expert's values to the next expert's; 0 where all rows share the values.
inline std::int64_t expert_stride(const TensorView& values) {
  return values.rank == 2 && values.shape[0] > 1 ? values.stride[0] : 0;
}

/// Why a kernel cannot count that many columns, and those of one more step, in an int; empty when it can.
inline std::string reject_width(const char* what, std::int64_t width) {
  constexpr std::int64_t largest = std::int64_t{1} << 30;
  return width <= largest ? std::string()
                          : fmt::format("{}: {} columns, at most {} are possible", what, width, largest);
}

/// Work-groups along a row, for kernels that never need the whole row: with several lanes, few rows still fill a GPU.
inline std::size_t row_groups(std::int32_t lanes, std::int64_t width) {
  const std::int64_t step = std::int64_t{lanes} * 16;
  return lanes == 1 ? 1 : static_cast<std::size_t>(std::max<std::int64_t>(quotient_up(width, step), 1));
}

/// Options for exchange of registers between lanes, where the lanes are whole warps of an NVIDIA device; else empty.
inline const char* shuffle_option(std::int32_t lanes, const DeviceCaps& caps) {
  if (caps.nv_compute_capability < 70 || lanes % 32 != 0) return "";
  return caps.nv_compute_capability >= 80 ? " -DHAS_SHUFFLE=1 -DHAS_REDUX=1" : " -DHAS_SHUFFLE=1";
}

/// Whether an access may take four elements: each row starts at a multiple of four elements and has a multiple of four.
inline bool has_fours(const TensorView& rows) {
  return rows.offset_elements() % 4 == 0 && rows.stride[0] % 4 == 0 && rows.shape[1] % 4 == 0;
}

/// " -DFOURS=1" where a GPU's work-items can access four columns at once in each of `rows`; absent views are ignored
inline std::string fours_option(std::int32_t lanes, std::initializer_list<const TensorView*> rows) {
  const bool fours = lanes > 1 && std::all_of(rows.begin(), rows.end(), [](const TensorView* view) {
                       return !view->present() || has_fours(*view);
                     });
  return fours ? " -DFOURS=1" : "";
}

/// "-DX_DTYPE=bf16"
inline std::string dtype_option(const char* macro, const TensorView& view) {
  return fmt::format(" -D{}={}", macro, name(view.dtype));
}

/// A scale's storage type: f32, f16, bf16, or 64 bits with f32 in the low half, as the Ascend operators pack them.
inline bool is_scale_dtype(DType dtype) {
  return is_activation_dtype(dtype) || dtype == DType::i64 || dtype == DType::u64;
}

/// The code by which any_dtype.clh knows a storage type while a kernel runs.
inline std::int32_t any_dtype(DType dtype) {
  return dtype == DType::f32 ? ANY_F32 : dtype == DType::f16 ? ANY_F16 : dtype == DType::bf16 ? ANY_BF16 : ANY_I64;
}

}  // namespace moecl
