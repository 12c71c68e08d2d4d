#include "tests/oracle/combine.hpp"

#include <cmath>

namespace moecl::test::oracle {

std::vector<double> combine(const CombineInput& in) {
  const std::size_t tokens = in.slot_rows.size() / in.top_k, rows = in.rows.size() / in.hidden;
  std::vector<double> out(tokens * in.hidden);
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::size_t h = 0; h < in.hidden; ++h) {
      double& sum = out[t * in.hidden + h];
      for (std::size_t k = 0; k < in.top_k; ++k) {
        const std::int32_t row = in.slot_rows[in.column_slots ? k * tokens + t : t * in.top_k + k];
        const double weight = in.weights.empty() ? 1 : in.weights[t * in.top_k + k];
        const bool exists = row >= 0 && static_cast<std::size_t>(row) < rows;
        if (in.skip_zero_weights && weight == 0) continue;
        if (exists) sum += weight * in.rows[static_cast<std::size_t>(row) * in.hidden + h];
        if (!in.bias.empty())
          sum += weight * in.bias[static_cast<std::size_t>(in.bias_ids[t * in.top_k + k]) * in.hidden + h];
      }
      const double gate = in.shared_gate.empty() ? 1 : 1 / (1 + std::exp(-in.shared_gate[t]));
      if (!in.shared.empty()) sum += gate * in.shared[t * in.hidden + h];
      if (!in.residual.empty()) sum += in.residual[t * in.hidden + h];
    }
  }
  return out;
}

}  // namespace moecl::test::oracle
