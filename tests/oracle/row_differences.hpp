#pragma once
#include <cstdint>
#include <vector>

namespace moecl::test::oracle {

/// For each row of `width` columns: the largest |x|, the largest |y - x|, the sum of x^2, the sum of (y - x)^2.
std::vector<double> row_differences(const std::vector<double>& x, const std::vector<double>& y, std::int64_t width);

}  // namespace moecl::test::oracle
