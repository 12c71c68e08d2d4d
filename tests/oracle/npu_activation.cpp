#include "tests/oracle/npu_activation.hpp"

#include <cmath>

namespace moecl::oracle {

std::vector<double> swiglu(const std::vector<double>& x, std::int64_t outer, std::int64_t inner) {
  std::vector<double> y;
  for (std::int64_t row = 0; row < outer; ++row)
    for (std::int64_t i = 0; i < inner; ++i) {
      const double a = x[static_cast<std::size_t>(row * 2 * inner + i)];
      y.push_back(a / (1 + std::exp(-a)) * x[static_cast<std::size_t>((row * 2 + 1) * inner + i)]);
    }
  return y;
}

}  // namespace moecl::oracle
