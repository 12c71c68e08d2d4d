#pragma once
// out[j] = ((a[index[j] / divisor] - zero point) x W_e^T + sum bias) * scales + bias_e for each row j of each
// expert e, in double precision.
#include <cstdint>
#include <vector>

namespace moecl::test {

/// Operands; an empty vector is an absent one.
struct GroupedProduct {
  std::int64_t n = 0, k = 0;
  std::vector<std::int64_t> rows_of_expert;
  std::int64_t rows_per_expert = 0;  ///< 0: standard layout, else batched
  std::int64_t rows = 0;             ///< of the output; rows past the valid ones may follow
  std::vector<double> a;             ///< [M, K]
  std::vector<double> index;         ///< [rows]
  std::int64_t divisor = 1;
  double a_zero_point = 0;
  std::vector<double> weights;       ///< [E, N, K]; one [N, K] where the experts have windows of k
  std::vector<double> k_ends;        ///< [E]: expert e multiplies with k in [k_ends[e - 1], k_ends[e])
  std::vector<double> a_scale;       ///< [M]
  std::vector<double> weight_scale;  ///< [E, N]
  std::vector<double> sum_bias;      ///< [E, N]
  std::vector<double> bias;          ///< [E, N]
  bool a_scale_bias = false;         ///< a_scale multiplies the bias too

  std::int64_t experts() const { return static_cast<std::int64_t>(rows_of_expert.size()); }
  std::vector<double> row_ends() const;
};

struct GroupedResult {
  std::vector<double> values;      ///< [rows, N]; NaN where nothing is written
  std::vector<double> magnitudes;  ///< the same sums over absolute values: what rounding errors are relative to
  /// For each 32 k, the larger of their largest term and of the range of the sums before them; added up over K. What
  /// tensor cores cut off when they add fp8 is relative to this. Empty unless asked for.
  std::vector<double> largest_of_steps;
};

GroupedResult grouped_gemm_oracle(const GroupedProduct& product, bool with_steps = false);

}  // namespace moecl::test
