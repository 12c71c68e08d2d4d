#include "tests/oracle/grouped_gemm.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace moecl::test {

std::vector<double> GroupedProduct::row_ends() const {
  std::vector<double> ends;
  double end = 0;
  for (const std::int64_t count : rows_of_expert) ends.push_back(end += static_cast<double>(count));
  return ends;
}

namespace {

/// Follows the sum of an element by steps of 32 k.
class Steps {
 public:
  void add(std::int64_t k, double term) {
    if (k % 32 == 0) finish();
    sum_ += term;
    largest_term_ = std::max(largest_term_, std::abs(term));
  }
  double finish() {
    total_ += std::max(largest_term_, highest_ - lowest_);
    highest_ = std::max(highest_, sum_), lowest_ = std::min(lowest_, sum_), largest_term_ = 0;
    return total_;
  }

 private:
  double sum_ = 0, highest_ = 0, lowest_ = 0, largest_term_ = 0, total_ = 0;
};

}  // namespace

GroupedResult grouped_gemm_oracle(const GroupedProduct& product, bool with_steps) {
  const auto at = [](const std::vector<double>& values, std::int64_t i, double absent) {
    return values.empty() ? absent : values[static_cast<std::size_t>(i)];
  };
  const std::size_t size = static_cast<std::size_t>(product.rows * product.n);
  GroupedResult result{std::vector<double>(size, std::numeric_limits<double>::quiet_NaN()), std::vector<double>(size),
                       std::vector<double>(with_steps ? size : 0)};
  std::int64_t row = 0;
  for (std::int64_t expert = 0; expert < product.experts(); ++expert) {
    if (product.rows_per_expert != 0) row = expert * product.rows_per_expert;
    for (const std::int64_t end = row + product.rows_of_expert[static_cast<std::size_t>(expert)]; row < end; ++row) {
      const std::int64_t first_k = expert == 0 ? 0 : static_cast<std::int64_t>(at(product.k_ends, expert - 1, 0));
      const auto last_k = static_cast<std::int64_t>(at(product.k_ends, expert, static_cast<double>(product.k)));
      const std::int64_t sources = static_cast<std::int64_t>(product.a.size()) / product.k;
      const auto source =
          static_cast<std::int64_t>(at(product.index, row, static_cast<double>(row % sources))) / product.divisor;
      for (std::int64_t column = 0; column < product.n; ++column) {
        const std::int64_t channel = expert * product.n + column, matrix = product.k_ends.empty() ? channel : column;
        double sum = at(product.sum_bias, channel, 0), magnitude = std::abs(sum);
        Steps steps;
        for (std::int64_t i = first_k; i < last_k; ++i) {
          const double term = (at(product.a, source * product.k + i, 0) - product.a_zero_point) *
                              at(product.weights, matrix * product.k + i, 0);
          sum += term;
          magnitude += std::abs(term);
          if (with_steps) steps.add(i - first_k, term);
        }
        const double row_scale = at(product.a_scale, source, 1),
                     scale = at(product.weight_scale, channel, 1) * row_scale,
                     bias = at(product.bias, channel, 0) * (product.a_scale_bias ? row_scale : 1);
        const auto out = static_cast<std::size_t>(row * product.n + column);
        result.values[out] = sum * scale + bias;
        result.magnitudes[out] = magnitude * std::abs(scale) + std::abs(bias);
        if (with_steps) result.largest_of_steps[out] = steps.finish() * std::abs(scale);
      }
    }
  }
  return result;
}

}  // namespace moecl::test
