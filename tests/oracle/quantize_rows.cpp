#include "tests/oracle/quantize_rows.hpp"

#include <moecl/f16.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

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

}  // namespace moecl::test::oracle
