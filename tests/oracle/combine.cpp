#include "tests/oracle/combine.hpp"

#include <cmath>

namespace moecl::test::oracle {

std::vector<double> combine(const CombineInput& in) {
  const std::size_t tokens = in.slot_rows.size() / in.top_k, rows = in.rows.size() / in.hidden;
  std::vector<double> out(tokens * in.hidden);
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::size_t h = 0; h < in.hidden; ++h) {
      double& sum = out[t * in.hidden + h];
      for (std::size_t slot = t * in.top_k; slot < (t + 1) * in.top_k; ++slot) {
        const std::int32_t row = in.slot_rows[slot];
        const double weight = in.weights.empty() ? 1 : in.weights[slot];
        if (row < 0 || static_cast<std::size_t>(row) >= rows || (in.skip_zero_weights && weight == 0)) continue;
        sum += weight * in.rows[static_cast<std::size_t>(row) * in.hidden + h];
      }
      const double gate = in.shared_gate.empty() ? 1 : 1 / (1 + std::exp(-in.shared_gate[t]));
      if (!in.shared.empty()) sum += gate * in.shared[t * in.hidden + h];
    }
  }
  return out;
}

}  // namespace moecl::test::oracle
