#include "tests/oracle/moe_block.hpp"

#include <algorithm>
#include <cmath>

#include "tests/oracle/gated_activation.hpp"
#include "tests/oracle/quantize_groups.hpp"
#include "tests/oracle/weight_matrix.hpp"

namespace moecl::test::oracle {
namespace {

using quantize_groups::ScaleRule;

/// The numbers that the codes of a row stand for.
std::vector<float> quantized(const std::vector<float>& row, const OperandQuant& how, float static_scale) {
  if (!how.quantized()) return row;
  quantize_groups::Args rules;
  rules.format = *how.type;
  rules.rule = how.rounding == ScaleRounding::amax_up        ? ScaleRule::mx_up
               : how.rounding == ScaleRounding::amax_even    ? ScaleRule::mx_even
               : how.rounding == ScaleRounding::amax_nearest ? ScaleRule::mx_nearest
               : how.rounding == ScaleRounding::ratio_up
                   ? (how.scale == ScaleFormat::e8m0 ? ScaleRule::mx_ceil : ScaleRule::power_of_two)
               : how.scale == ScaleFormat::e8m0 ? ScaleRule::mx_floor
               : how.scale == ScaleFormat::e4m3 ? ScaleRule::e4m3
               : how.static_scale               ? ScaleRule::given
               : how.zero_points                ? ScaleRule::range
                                                : ScaleRule::ratio;
  rules.most_amax = how.most_amax;
  rules.least_scale = how.least_scale;
  if (rules.rule == ScaleRule::e4m3 && how.static_scale) rules.global_scale = 1 / static_scale;
  if (rules.rule == ScaleRule::given) rules.quotient = quantize_groups::Quotient::reciprocal;
  const std::size_t group =
      how.group.columns == ScaleGroup::whole ? row.size() : static_cast<std::size_t>(how.group.columns);
  std::vector<float> values;
  for (std::size_t first = 0; first < row.size(); first += group) {
    const std::vector<float> part(row.begin() + static_cast<std::ptrdiff_t>(first),
                                  row.begin() + static_cast<std::ptrdiff_t>(std::min(first + group, row.size())));
    const std::vector<float> numbers = quantize_group(part, rules, static_scale).values;
    values.insert(values.end(), numbers.begin(), numbers.end());
  }
  return values;
}

/// Whether small errors of either sign in the numbers change the quantized values.
bool near_tie(const std::vector<float>& row, const OperandQuant& how, float static_scale) {
  float amax = 0;
  for (const float value : row) amax = std::max(amax, std::abs(value));
  const std::vector<float> values = quantized(row, how, static_scale);
  for (const float nudge : {1e-6F, -1e-6F}) {
    std::vector<float> nudged = row;
    for (std::size_t i = 0; i < row.size(); ++i) nudged[i] += (i % 2 == 0 ? nudge : -nudge) * amax;
    const std::vector<float> others = quantized(nudged, how, static_scale);
    for (std::size_t i = 0; i < row.size(); ++i)
      if (std::abs(others[i] - values[i]) > 5e-6F * amax) return true;
  }
  return false;
}

std::vector<double> product(const WeightMatrix& given, const HostMatrix& bias, const std::vector<float>& x) {
  const WeightMatrix weights = in_memory(given);
  std::vector<double> out;
  for (std::int64_t n = 0; n < weights.rows(); ++n) {
    double sum = bias.present() ? matrix_element(bias, 0, n) : 0;
    for (std::int64_t k = 0; k < weights.columns(); ++k)
      sum += weight_element(weights, n, k) * static_cast<double>(x[static_cast<std::size_t>(k)]);
    out.push_back(sum);
  }
  return out;
}

struct NetworkRow {
  std::vector<double> out;
  bool decided;
};

NetworkRow network(const ExpertMatrices& expert, const Activation& activation, const OperandQuant& how,
                   const std::vector<float>& x) {
  const std::vector<float> in = quantized(x, how, expert.gate_up_input_scale);
  std::vector<double> inner;
  if (activation.gated) inner = product(expert.gate, expert.gate_bias, in);
  const std::vector<double> up = product(expert.up, expert.up_bias, in);
  inner.insert(inner.end(), up.begin(), up.end());
  const std::vector<double> activated = gated_activation(inner, activation);
  const std::vector<float> row(activated.begin(), activated.end());
  return {product(expert.down, expert.down_bias, quantized(row, how, expert.down_input_scale)),
          !how.quantized() || !near_tie(row, how, expert.down_input_scale)};
}

}  // namespace

MoeBlockRows moe_block(const MoeBlock& block, const std::vector<float>& x, const std::vector<double>& ids,
                       const std::vector<double>& weights) {
  const MoeShape& shape = block.shape;
  const auto hidden = static_cast<std::size_t>(shape.hidden), top_k = static_cast<std::size_t>(shape.router.top_k);
  MoeBlockRows rows;
  for (std::size_t token = 0; token < ids.size() / top_k; ++token) {
    const std::vector<float> row(x.begin() + static_cast<std::ptrdiff_t>(token * hidden),
                                 x.begin() + static_cast<std::ptrdiff_t>((token + 1) * hidden));
    std::vector<double> out(hidden);
    bool decided = true;
    const auto add = [&](const NetworkRow& part, double weight) {
      for (std::size_t h = 0; h < hidden; ++h) out[h] += weight * part.out[h];
      decided = decided && part.decided;
    };
    for (std::size_t slot = token * top_k; slot < (token + 1) * top_k; ++slot) {
      const ExpertMatrices& expert = block.weights.experts[static_cast<std::size_t>(ids[slot])];
      std::vector<float> in = row;
      if (shape.router.weight_on_input)
        for (float& value : in) value *= static_cast<float>(weights[slot]);
      add(network(expert, shape.activation, block.activations, in), shape.router.weight_on_input ? 1 : weights[slot]);
    }
    if (shape.shared_intermediate > 0) {
      double gate = 0;
      for (std::size_t h = 0; shape.shared_gate && h < hidden; ++h)
        gate +=
            matrix_element(block.weights.shared_gate, 0, static_cast<std::int64_t>(h)) * static_cast<double>(row[h]);
      add(network(block.weights.shared, shape.activation, block.shared_activations, row),
          shape.shared_gate ? 1 / (1 + std::exp(-gate)) : 1);
    }
    rows.out.insert(rows.out.end(), out.begin(), out.end());
    rows.decided.push_back(decided);
  }
  return rows;
}

}  // namespace moecl::test::oracle
