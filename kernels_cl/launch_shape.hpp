#pragma once
// Choices that every row-wise operator makes the same way.
#include <moecl/device.hpp>
#include <moecl/tensor_view.hpp>

#include <fmt/format.h>

namespace moecl {

/// Work-items that share a row: a CPU runs one work-item a row with wide vectors, a GPU wants neighbouring lanes.
inline std::int32_t row_lanes(std::int32_t configured, const DeviceCaps& caps) {
  if (configured > 0) return configured;
  return caps.type == DeviceType::cpu ? 1 : 64;
}

/// "-DX_DTYPE=bf16"
inline std::string dtype_option(const char* macro, const TensorView& view) {
  return fmt::format(" -D{}={}", macro, name(view.dtype));
}

}  // namespace moecl
