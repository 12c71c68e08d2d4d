#pragma once
#include <cstdint>
#include <cstring>

namespace moecl {

/// IEEE binary16. Source: IEEE 754-2019, section 3.6
inline float f16_to_f32(std::uint16_t code) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x8000U) << 16;
  const std::uint32_t magnitude = code & 0x7fffU;
  float value;
  if (magnitude < 0x400U) {  // zero and subnormals: multiples of 2^-24, exact in f32
    value = static_cast<float>(magnitude) * 0x1p-24F;
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    bits |= sign;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }
  const std::uint32_t bits = magnitude >= 0x7c00U ? sign | 0x7f800000U | ((magnitude & 0x3ffU) << 13)
                                                  : sign | ((magnitude << 13) + (112U << 23));
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

/// Rounds to nearest even. Values too large become infinity; a NaN stays a (quiet) NaN of the same sign.
inline std::uint16_t f16_from_f32(float value) noexcept {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  bits &= 0x7fffffffU;
  if (bits > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U | ((bits >> 13) & 0x3ffU));
  if (bits >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);  // 65520 and above round to infinity
  if (bits < 0x38800000U) {  // below 2^-14: round to a multiple of 2^-24 by letting the f32 addition do it
    float magnitude;
    std::memcpy(&magnitude, &bits, sizeof(magnitude));
    magnitude += 0.5F;
    std::memcpy(&bits, &magnitude, sizeof(bits));
    return static_cast<std::uint16_t>(sign | (bits - 0x3f000000U));
  }
  return static_cast<std::uint16_t>(sign | ((bits - (112U << 23) + 0xfffU + ((bits >> 13) & 1U)) >> 13));
}

}  // namespace moecl
