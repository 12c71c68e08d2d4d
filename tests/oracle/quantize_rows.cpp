#include "tests/oracle/quantize_rows.hpp"

#include <moecl/f16.hpp>
#include <moecl/fp8.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/oracle/mx_quantize.hpp"

namespace moecl::test::oracle {
namespace {

using quantize_rows::Rounding;
using quantize_rows::Scheme;

float f16(float x) { return f16_to_f32(f16_from_f32(x)); }

std::int8_t with_offset(float code, float levels) {
  return static_cast<std::int8_t>(std::clamp(std::nearbyint(code), -levels - 1, levels));
}

QuantizedRow symmetric(const std::vector<double>& x, Rounding rounding, float levels) {
  float amax = 0;
  for (const double value : x) amax = std::max(amax, std::abs(static_cast<float>(value)));
  QuantizedRow out{0, std::vector<std::int8_t>(x.size())};
  if (amax / levels < std::numeric_limits<float>::min()) return out;
  out.scale = amax / levels;
  if (rounding == Rounding::divide_scaled || rounding == Rounding::divide_scaled_f16 ||
      rounding == Rounding::multiply_127_by_amax_scaled)
    out.scale = amax * (1.0F / levels);
  if (rounding == Rounding::multiply_127_by_amax) out.scale = 1.0F / (levels / amax);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto value = static_cast<float>(x[i]);
    float code = 0;
    switch (rounding) {
      case Rounding::divide:
      case Rounding::divide_scaled:
        code = std::nearbyint(value / out.scale);
        break;
      case Rounding::divide_ties_away:
        code = std::round(value / out.scale);
        break;
      case Rounding::multiply_reciprocal:
        code = std::nearbyint(value * (1.0F / out.scale));
        break;
      case Rounding::multiply_reciprocal_f16:
        code = std::nearbyint(f16(value * (1.0F / out.scale)));
        break;
      case Rounding::divide_scaled_f16:
        code = std::nearbyint(f16(value / out.scale));
        break;
      case Rounding::multiply_127_by_amax:
      case Rounding::multiply_127_by_amax_scaled:
        code = std::nearbyint(value * (levels / amax));
        break;
    }
    out.q[i] = static_cast<std::int8_t>(code);
  }
  return out;
}

}  // namespace

QuantizedRow quantize_row(const std::vector<double>& x, Rounding rounding, Scheme scheme, float levels,
                          const QuantizedRow& given) {
  if (scheme == Scheme::symmetric) return symmetric(x, rounding, levels);
  QuantizedRow out = given;
  if (scheme == Scheme::static_f16) {
    for (const double value : x)
      out.q.push_back(
          with_offset(f16(f16(f16(static_cast<float>(value)) * f16(given.scale)) + f16(given.offset)), levels));
    return out;
  }
  const auto [low, high] = std::minmax_element(x.begin(), x.end());
  const auto largest = static_cast<float>(*high);
  out.scale = std::max((largest - static_cast<float>(*low)) / (2 * levels + 1), 1e-12F);
  out.offset = levels - largest / out.scale;
  for (const double value : x) out.q.push_back(with_offset(static_cast<float>(value) / out.scale + out.offset, levels));
  return out;
}

namespace {

/// The value of a positive HiFloat8 code, by its fields: dot, exponent with a sign and a hidden 1, mantissa.
double hif8_value(int code) {
  const auto number = [&](int exponent_bits, int mantissa_bits) {
    const int field = code >> mantissa_bits & ((1 << exponent_bits) - 1);
    const int hidden = exponent_bits == 0 ? 0 : 1 << (exponent_bits - 1);
    const bool below = exponent_bits != 0 && field >= hidden;
    const int size = exponent_bits == 0 ? 0 : hidden | (field & (hidden - 1));
    const double mantissa = 1 + std::ldexp(code & ((1 << mantissa_bits) - 1), -mantissa_bits);
    return std::ldexp(mantissa, below ? -size : size);
  };
  if (code == 0x6f) return std::numeric_limits<double>::infinity();
  if (code >> 5 == 3) return number(4, 1);
  if (code >> 5 == 2) return number(3, 2);
  if (code >> 5 == 1) return number(2, 3);
  if (code >> 4 == 1) return number(1, 3);
  if (code >> 3 == 1) return number(0, 3);
  return code == 0 ? 0 : std::ldexp(1, code - 23);
}

float largest_of(quantize_rows::Codes codes) {
  return codes == quantize_rows::Codes::e4m3 ? 448 : codes == quantize_rows::Codes::e5m2 ? 57344 : 32768;
}

}  // namespace

std::uint8_t float_code(float x, quantize_rows::Codes codes, bool saturates) {
  if (codes == quantize_rows::Codes::e4m3) return minifloat_code(x, fp8_e4m3fn);
  if (codes == quantize_rows::Codes::e5m2) return minifloat_code(x, fp8_e5m2);
  const double magnitude = std::abs(static_cast<double>(x));
  if (saturates && magnitude > 32768) return x < 0 ? 0xee : 0x6e;
  if (magnitude >= 40960) return x < 0 ? 0xef : 0x6f;  // halfway to the mantissa that means infinity
  int best = 0;
  for (int code = 1; code < 128; ++code) {
    const double value = hif8_value(code), difference = std::abs(value - magnitude),
                 least = std::abs(hif8_value(best) - magnitude);
    if (difference < least || (difference == least && value > hif8_value(best))) best = code;
  }
  return static_cast<std::uint8_t>(x < 0 && best != 0 ? best | 0x80 : best);
}

FloatRow quantize_row_to_floats(const std::vector<double>& x, const FloatRules& rules) {
  const float largest = largest_of(rules.codes);
  const std::size_t group = rules.group == 0 ? std::max<std::size_t>(x.size(), 1) : rules.group;
  FloatRow out;
  for (std::size_t first = 0; first < x.size(); first += group) {
    const std::size_t end = std::min(first + group, x.size());
    float amax = rules.least_amax;
    for (std::size_t i = first; i < end; ++i) amax = std::max(amax, std::abs(static_cast<float>(x[i])));
    float scale = amax / largest;
    if (rules.rounding == Rounding::multiply_127_by_amax) scale = 1.0F / (largest / amax);
    if (rules.rounding == Rounding::multiply_127_by_amax_scaled || rules.rounding == Rounding::divide_scaled)
      scale = amax * (1.0F / largest);
    const bool by_amax =
        rules.rounding == Rounding::multiply_127_by_amax || rules.rounding == Rounding::multiply_127_by_amax_scaled;
    if (amax / largest < std::numeric_limits<float>::min()) scale = 0;
    if (rules.power_of_two && scale != 0) scale = static_cast<float>(std::exp2(std::ceil(std::log2(double{scale}))));
    out.scale.push_back(scale);
    for (std::size_t i = first; i < end; ++i) {
      const auto value = static_cast<float>(x[i]);
      out.q.push_back(scale == 0 ? std::uint8_t{0}
                                 : float_code(by_amax ? value * (largest / amax) : value / scale, rules.codes));
    }
  }
  return out;
}

}  // namespace moecl::test::oracle
