#include "tests/oracle/row_differences.hpp"

#include <algorithm>
#include <cmath>

namespace moecl::test::oracle {

std::vector<double> row_differences(const std::vector<double>& x, const std::vector<double>& y, std::int64_t width) {
  std::vector<double> out;
  for (std::size_t first = 0; first < x.size(); first += static_cast<std::size_t>(width)) {
    double largest = 0, largest_difference = 0, squares = 0, squared_differences = 0;
    for (std::size_t i = first; i < first + static_cast<std::size_t>(width); ++i) {
      largest = std::max(largest, std::abs(x[i]));
      largest_difference = std::max(largest_difference, std::abs(y[i] - x[i]));
      squares += x[i] * x[i];
      squared_differences += (y[i] - x[i]) * (y[i] - x[i]);
    }
    out.insert(out.end(), {largest, largest_difference, squares, squared_differences});
  }
  return out;
}

}  // namespace moecl::test::oracle
