#include "tests/oracle/gating_top_k.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace moecl::test::oracle {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

std::vector<double> scores(ScoreFunction function, const std::vector<double>& x) {
  std::vector<double> out = x;
  if (function == ScoreFunction::none) return out;
  if (function == ScoreFunction::sigmoid) {
    for (double& value : out) value = 1 / (1 + std::exp(-value));
    return out;
  }
  if (function == ScoreFunction::sqrtsoftplus) {
    for (double& value : out) value = std::sqrt(std::max(value, 0.0) + std::log1p(std::exp(-std::abs(value))));
    return out;
  }
  double largest = -infinity, sum = 0;
  for (const double value : x) largest = std::fmax(largest, value);
  for (double& value : out) {
    // The limit of softmax: logits of +inf share equally, and all others get 0. If all are -inf, all get 0.
    if (std::isinf(largest))
      value = std::isnan(value) ? value : (value == infinity ? 1 : 0);
    else
      value = std::exp(value - largest);
    if (!std::isnan(value)) sum += value;
  }
  for (double& value : out) value = sum > 0 ? value / sum : value;
  return out;
}

/// The softmax of the first expert of `left`, which has the largest logit, among those of `left` within the threshold.
double mixer_share(const std::vector<double>& logits, const std::vector<std::size_t>& left, double jitter) {
  const double best = logits[left.front()];
  std::vector<double> near;
  for (const std::size_t e : left)
    if (!((best - logits[e]) / std::fmax(std::abs(logits[e]), best) > 2 * jitter)) near.push_back(logits[e]);
  return scores(ScoreFunction::softmax, near).front();
}

/// Descending by value, NaN last; equal values by ascending index.
bool goes_first(const std::vector<double>& values, std::size_t a, std::size_t b) {
  if (std::isnan(values[a]) != std::isnan(values[b])) return std::isnan(values[b]);
  if (!std::isnan(values[a]) && values[a] != values[b]) return values[a] > values[b];
  return a < b;
}

std::vector<std::size_t> ranking(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return goes_first(values, a, b); });
  return order;
}

double group_score(GroupScore kind, const std::vector<double>& choice, std::size_t begin, std::size_t size) {
  const std::vector<double> group(choice.begin() + static_cast<std::ptrdiff_t>(begin),
                                  choice.begin() + static_cast<std::ptrdiff_t>(begin + size));
  const std::vector<std::size_t> order = ranking(group);
  return kind == GroupScore::max || size == 1 ? group[order[0]] : group[order[0]] + group[order[1]];
}

}  // namespace

TopK gating_top_k(const std::vector<double>& logits, const std::vector<double>& bias, const RouterSpec& spec) {
  const bool before = spec.order == ScoreOrder::before_top_k;
  const std::vector<double> score = before ? scores(spec.score, logits) : logits;
  std::vector<double> choice = score;
  for (std::size_t e = 0; e < bias.size(); ++e) choice[e] += bias[e];

  const std::size_t size = logits.size() / static_cast<std::size_t>(spec.groups);
  std::vector<double> group_scores;
  for (std::size_t begin = 0; begin < logits.size(); begin += size)
    group_scores.push_back(group_score(spec.group_score, choice, begin, size));
  std::vector<bool> kept(group_scores.size());
  const std::vector<std::size_t> group_order = ranking(group_scores);
  for (std::size_t i = 0; i < static_cast<std::size_t>(spec.kept_groups); ++i) kept[group_order[i]] = true;

  TopK out;
  for (const std::size_t e : ranking(choice))
    if (kept[e / size] && out.ids.size() < static_cast<std::size_t>(spec.top_k - spec.fused_shared_experts)) {
      out.ids.push_back(static_cast<std::int32_t>(e));
      out.weights.push_back(score[e]);
    }
  if (spec.score == ScoreFunction::sparse_mixer) {
    std::vector<std::size_t> left = ranking(logits);
    for (double& weight : out.weights) {
      weight = mixer_share(logits, left, spec.mixer_jitter);
      left.erase(left.begin());
    }
  } else if (!before) {
    out.weights = scores(spec.score, out.weights);
  }
  double sum = spec.renormalise_epsilon;
  for (double& weight : out.weights) {
    if (std::isnan(weight)) weight = 0;
    sum += weight;
  }
  sum = std::max(sum, static_cast<double>(spec.renormalise_minimum));
  for (double& weight : out.weights) weight = weight / (spec.renormalise && sum > 0 ? sum : 1) * spec.scaling_factor;
  for (std::int32_t i = 0; i < spec.fused_shared_experts; ++i) {
    out.ids.push_back(static_cast<std::int32_t>(logits.size()) + i);
    out.weights.push_back(1);
  }
  return out;
}

}  // namespace moecl::test::oracle
