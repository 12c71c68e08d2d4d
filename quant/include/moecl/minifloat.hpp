#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace moecl {

/// A floating-point format of at most 8 bits: a sign, an exponent and a mantissa, with subnormal numbers.
///
/// Codes above `largest` are infinity where their mantissa is 0, and NaN elsewhere.
/// Source: OCP 8-bit Floating Point Specification 1.0; OCP Microscaling Formats 1.0, section 5.3
struct Minifloat {
  int exponent_bits, mantissa_bits;
  int min_exponent;      ///< exponent of the smallest normal number
  std::uint8_t largest;  ///< code of the largest finite number

  constexpr int bits() const noexcept { return 1 + exponent_bits + mantissa_bits; }
  /// Exponent of the largest finite number.
  constexpr int max_exponent() const noexcept { return min_exponent + (largest >> mantissa_bits) - 1; }

  /// The number that a code stands for.
  float decode(std::uint8_t code) const noexcept {
    const int sign = code >> (bits() - 1) & 1, magnitude = code & ((1 << (bits() - 1)) - 1);
    const int exponent = magnitude >> mantissa_bits, mantissa = magnitude & ((1 << mantissa_bits) - 1);
    float value;
    if (magnitude > largest)
      value = mantissa == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
    else if (exponent == 0)
      value = std::ldexp(static_cast<float>(mantissa), min_exponent - mantissa_bits);
    else
      value =
          std::ldexp(static_cast<float>(mantissa + (1 << mantissa_bits)), min_exponent + exponent - 1 - mantissa_bits);
    return sign != 0 ? -value : value;
  }

  /// Rounds to nearest even. Magnitudes above the largest finite number, infinity too, become that number. A NaN
  /// becomes the NaN of all ones, or zero in a format without NaN.
  std::uint8_t encode(float value) const noexcept {
    const int sign = std::signbit(value) ? 1 << (bits() - 1) : 0, all_ones = (1 << (bits() - 1)) - 1;
    if (std::isnan(value)) return static_cast<std::uint8_t>(sign | (all_ones > largest ? all_ones : 0));
    const float magnitude = std::min(std::abs(value), decode(largest));
    if (magnitude == 0) return static_cast<std::uint8_t>(sign);
    const int exponent = std::max(std::ilogb(magnitude), min_exponent);
    // The magnitude in steps of that exponent. Rounding up to the next exponent carries into the exponent bits.
    const auto steps = static_cast<int>(std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent)));
    return static_cast<std::uint8_t>(sign | (((exponent - min_exponent) << mantissa_bits) + steps));
  }
};

}  // namespace moecl
