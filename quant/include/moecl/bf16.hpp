#pragma once
#include <cstdint>
#include <cstring>

namespace moecl {

/// bfloat16: the upper half of an IEEE binary32.
inline float bf16_to_f32(std::uint16_t code) noexcept {
  const std::uint32_t bits = static_cast<std::uint32_t>(code) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

/// Rounds to nearest even. Values too large become infinity; a NaN stays a (quiet) NaN of the same sign.
inline std::uint16_t bf16_from_f32(float value) noexcept {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

}  // namespace moecl
