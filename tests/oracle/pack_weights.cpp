#include "tests/oracle/pack_weights.hpp"

namespace moecl::test::oracle {

std::vector<double> pack_weights(const std::vector<double>& matrix, std::size_t k) {
  const std::size_t rows = matrix.size() / k, panels = (rows + 63) / 64;
  std::vector<double> packed(panels * k * 64);
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t i = 0; i < k; ++i) packed[(row / 64 * k + i) * 64 + row % 64] = matrix[row * k + i];
  return packed;
}

}  // namespace moecl::test::oracle
