#include "tests/oracle/npu_activation.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace moecl::test::oracle {

std::vector<double> swiglu(const std::vector<double>& x, std::int64_t outer, std::int64_t inner) {
  std::vector<double> y;
  for (std::int64_t row = 0; row < outer; ++row)
    for (std::int64_t i = 0; i < inner; ++i) {
      const double a = x[static_cast<std::size_t>(row * 2 * inner + i)];
      y.push_back(a / (1 + std::exp(-a)) * x[static_cast<std::size_t>((row * 2 + 1) * inner + i)]);
    }
  return y;
}

std::vector<double> dequantized_swiglu(const std::vector<double>& x, const SwigluForm& form) {
  const std::size_t width = x.size() / 2;
  std::vector<double> y;
  for (std::size_t i = 0; i < width; ++i) {
    double g = form.interleaved ? x[2 * i] : x[i], u = form.interleaved ? x[2 * i + 1] : x[width + i];
    if (form.right_is_gate) std::swap(g, u);
    if (!form.clamped) {
      y.push_back(g / (1 + std::exp(-g)) * u);
      continue;
    }
    if (form.limit > 0) {
      g = std::min(g, form.limit);
      u = std::max(std::min(u, form.limit), -form.limit);
    }
    y.push_back(g / (1 + std::exp(-form.alpha * g)) * (u + form.bias));
  }
  return y;
}

double code_or_tie(double quotient, double lowest, bool exact) {
  const double code = std::min(std::max(std::nearbyint(quotient), lowest), 127.0);
  const bool near_tie = std::abs(std::abs(quotient - std::trunc(quotient)) - 0.5) < 1e-3;
  return near_tie && !exact && quotient > lowest && quotient < 127 ? quotient : code;
}

}  // namespace moecl::test::oracle
