#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace moecl {

/// The scale of a block: 2^(code - 127); 255 is NaN. Source: OCP Microscaling Formats 1.0, section 5.4.1
inline float e8m0_to_f32(std::uint8_t code) noexcept {
  return code == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0F, code - 127);
}

/// Code of the largest power of two that is not above a positive finite value, at least 2^-127.
inline std::uint8_t e8m0_floor(float value) noexcept {
  return static_cast<std::uint8_t>(std::max(std::ilogb(value) + 127, 0));
}

/// Code of the smallest power of two that is not below a positive finite value, at most 2^127.
inline std::uint8_t e8m0_ceil(float value) noexcept {
  const int exponent = std::ilogb(value) + (std::ldexp(1.0F, std::ilogb(value)) < value ? 1 : 0);
  return static_cast<std::uint8_t>(std::clamp(exponent + 127, 0, 254));
}

}  // namespace moecl
