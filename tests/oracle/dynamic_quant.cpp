#include "tests/oracle/dynamic_quant.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace moecl::test::oracle {

QuantizedRow dynamic_quant(const std::vector<double>& x, dynamic_quant::Rounding rounding) {
  using Rounding = dynamic_quant::Rounding;
  float amax = 0;
  for (const double value : x) amax = std::max(amax, std::abs(static_cast<float>(value)));
  QuantizedRow out{0, std::vector<std::int8_t>(x.size())};
  if (amax / 127.0F < std::numeric_limits<float>::min()) return out;
  switch (rounding) {
    case Rounding::divide:
    case Rounding::multiply_reciprocal:
      out.scale = amax / 127.0F;
      break;
    case Rounding::divide_scaled:
      out.scale = amax * (1.0F / 127.0F);
      break;
    case Rounding::multiply_127_by_amax:
      out.scale = 1.0F / (127.0F / amax);
      break;
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto value = static_cast<float>(x[i]);
    float quotient = value / out.scale;
    if (rounding == Rounding::multiply_reciprocal) quotient = value * (1.0F / out.scale);
    if (rounding == Rounding::multiply_127_by_amax) quotient = value * (127.0F / amax);
    out.q[i] = static_cast<std::int8_t>(std::nearbyint(quotient));
  }
  return out;
}

}  // namespace moecl::test::oracle
