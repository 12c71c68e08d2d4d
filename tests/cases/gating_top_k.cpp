#include "tests/oracle/gating_top_k.hpp"

#include <moecl/gating_top_k.hpp>

#include "tests/cases/device_memory.hpp"
#include "tests/cases/self_test.hpp"

namespace moecl::test {

std::vector<SelfTestResult> self_test_gating_top_k(StreamView stream) {
  constexpr std::int64_t tokens = 3, experts = 32, top_k = 4;
  RouterSpec spec{top_k, ScoreFunction::sigmoid};
  spec.groups = 8;
  spec.kept_groups = 3;
  spec.group_score = GroupScore::sum_of_top_2;
  spec.renormalise = true;
  const std::vector<double> logits = rounded(DType::f32, normal(tokens * experts, 1)),
                            bias = rounded(DType::f32, normal(experts, 2));
  const DeviceTensor x(stream, DType::f32, {tokens, experts}, logits), b(stream, DType::f32, {experts}, bias);
  const DeviceTensor ids(stream, DType::i32, {tokens, top_k}), weights(stream, DType::f32, {tokens, top_k});
  gating_top_k::enqueue(stream, {x, b, ids, weights}, spec);
  std::vector<double> expected_ids, expected_weights;
  for (auto row = logits.begin(); row != logits.end(); row += experts) {
    const oracle::TopK chosen = oracle::gating_top_k({row, row + experts}, bias, spec);
    expected_ids.insert(expected_ids.end(), chosen.ids.begin(), chosen.ids.end());
    expected_weights.insert(expected_weights.end(), chosen.weights.begin(), chosen.weights.end());
  }
  const std::string shape = "f32[3, 32] top 4, 3 of 8 groups";
  return {{"gating_top_k", "ids", shape, relative_error(ids.values(stream), expected_ids), 0},
          {"gating_top_k", "weights", shape, relative_error(weights.values(stream), expected_weights), 2e-6}};
}

}  // namespace moecl::test
