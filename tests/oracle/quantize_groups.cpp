#include "tests/oracle/quantize_groups.hpp"

#include <moecl/code_numbers.hpp>
#include <moecl/e8m0.hpp>
#include <moecl/fp8.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/oracle/mx_quantize.hpp"

namespace moecl::test::oracle {
namespace {

using quantize_groups::Args;
using quantize_groups::Quotient;
using quantize_groups::Rounding;
using quantize_groups::ScaleRule;

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

float largest_of(const Args& rules) {
  return rules.format == CodeType::i8   ? 127
         : rules.format == CodeType::i4 ? 7
                                        : minifloat_of(rules.format).decode(minifloat_of(rules.format).largest);
}

/// NaN counts as the largest, as in torch's maximum.
float largest_magnitude(const std::vector<float>& x) {
  float amax = 0;
  for (const float value : x)
    if (std::isnan(value) || std::abs(value) > amax) amax = std::isnan(amax) ? amax : std::abs(value);
  return amax;
}

/// The code of a quotient. NaN becomes the all-ones code where the format has one.
std::int32_t code_of(float quotient, const Args& rules) {
  if (is_integer(rules.format)) {
    const float most = largest_of(rules);
    if (std::isnan(quotient)) return 0;
    const float code = rules.rounding == Rounding::halves_to_even ? std::nearbyint(quotient)
                       : rules.rounding == Rounding::halves_away  ? std::round(quotient)
                                                                  : std::trunc(quotient);
    return static_cast<std::int32_t>(std::clamp(code, rules.rule == ScaleRule::given ? -most - 1 : -most, most));
  }
  const Minifloat format = minifloat_of(rules.format);
  if (!std::isnan(quotient))
    return minifloat_code(std::isinf(quotient) ? std::copysign(1e30, quotient) : quotient, format);
  return format.bits() == 8 ? 0x7f | (std::signbit(quotient) ? 0x80 : 0) : 0;
}

/// Sets scale and zero point of an asymmetric group. @return  the divisor of its numbers
float set_range(const std::vector<float>& x, QuantizedGroup& to) {
  float least = 0, greatest = 0;
  for (const float value : x) {
    if (std::isnan(value)) least = greatest = value;
    if (value < least) least = value;
    if (value > greatest) greatest = value;
  }
  to.scale = (greatest - least) / 255;
  to.zero = -128;
  if (to.scale < std::numeric_limits<float>::min()) {
    to.scale = 1;
    return std::numeric_limits<float>::infinity();
  }
  const float zero = std::nearbyint(-128 - least / to.scale);
  to.zero = std::isnan(zero) ? 0 : static_cast<std::int32_t>(zero);
  return to.scale;
}

/// Exponent of an MX block's scale, by f64 arithmetic.
int mx_exponent(float amax, const Args& rules) {
  const double largest = largest_of(rules);
  // From this significand on, which depends on the rule, the largest magnitude is rounded up to a power of two.
  const double significand = amax / std::ldexp(1.0, std::ilogb(amax)),
               step = std::ldexp(1.0, -minifloat_of(rules.format).mantissa_bits);
  const bool up = (rules.rule == ScaleRule::mx_even && significand >= 1.75) ||
                  (rules.rule == ScaleRule::mx_nearest && significand >= 2 - step / 2) ||
                  (rules.rule == ScaleRule::mx_up && significand > 1);
  int exponent = std::ilogb(amax) + (up ? 1 : 0) - std::ilogb(largest);
  if (rules.rule == ScaleRule::mx_ceil && std::ldexp(largest, exponent) < amax) ++exponent;
  return std::clamp(exponent, -127, 127);
}

}  // namespace

float ratio_scale(float amax, const Args& rules) {
  const float counted = std::isnan(amax) ? amax : std::clamp(amax, rules.least_amax, rules.most_amax);
  const float ratio = counted / largest_of(rules);
  const float scale = ratio < rules.least_scale ? rules.least_scale : ratio;
  return scale < std::numeric_limits<float>::min() ? 1 : scale;
}

QuantizedGroup quantize_group(const std::vector<float>& x, const Args& rules, float scale) {
  const float amax = largest_magnitude(x);
  QuantizedGroup out;
  out.scale =
      rules.rule == ScaleRule::given || rules.rule == ScaleRule::ratio_over_rows ? scale : ratio_scale(amax, rules);
  const bool is_mx = rules.rule >= ScaleRule::mx_floor && rules.rule <= ScaleRule::mx_up;
  if (rules.rule == ScaleRule::power_of_two && std::isfinite(out.scale)) {
    out.scale_code = e8m0_ceil(out.scale);
    out.scale = e8m0_to_f32(out.scale_code);
  } else if (is_mx) {
    out.scale_code = !std::isfinite(amax) ? 255
                     : amax == 0          ? 0
                                          : static_cast<std::uint8_t>(mx_exponent(amax, rules) + 127);
    out.scale = e8m0_to_f32(out.scale_code);
  } else if (rules.rule == ScaleRule::e4m3) {
    const float wanted = rules.global_scale * amax / largest_of(rules);
    out.scale_code = std::isnan(wanted) ? 0x7f : minifloat_code(std::min(wanted, 448.0F), fp8_e4m3fn);
    out.scale = fp8_e4m3fn.decode(out.scale_code);
  }
  const float range_divisor = rules.rule == ScaleRule::range ? set_range(x, out) : 0;
  // Such a group's scale is 1, so codes are 0. A quotient by amax would not be. Zeros keep their sign, as elsewhere.
  const bool zeros = amax / largest_of(rules) < std::numeric_limits<float>::min();
  for (const float value : x) {
    std::int32_t code = 0;
    if (rules.rule == ScaleRule::range) {
      const float quotient = value / range_divisor;
      if (!std::isnan(quotient))
        code = static_cast<std::int32_t>(
            std::clamp(std::nearbyint(quotient) + static_cast<float>(out.zero), -128.0F, 127.0F));
    } else if (is_mx)  // in f64, where the quotient is exact
      code = out.scale_code == 255 ? 0
                                   : minifloat_code(std::ldexp(static_cast<double>(value), 127 - out.scale_code),
                                                    minifloat_of(rules.format));
    else if (rules.rule == ScaleRule::e4m3)
      code = code_of(value * (out.scale == 0 ? 0.0F : rules.global_scale / out.scale), rules);
    else if (rules.quotient == Quotient::divide)
      code = code_of(value / out.scale, rules);
    else if (rules.quotient == Quotient::reciprocal)
      code = code_of(value * (1 / out.scale), rules);
    else
      code = code_of(zeros ? value * 0 : value * (largest_of(rules) / amax), rules);
    out.codes.push_back(code);
    const float number = is_integer(rules.format) ? static_cast<float>(code - out.zero)
                                                  : minifloat_of(rules.format).decode(static_cast<std::uint8_t>(code));
    out.values.push_back(std::isnan(value) ? nan : number * out.scale / rules.global_scale);
  }
  return out;
}

}  // namespace moecl::test::oracle
