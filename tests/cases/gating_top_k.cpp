#include "tests/oracle/gating_top_k.hpp"

#include <moecl/gating_top_k.hpp>

#include "tests/cases/device_memory.hpp"
#include "tests/cases/self_test.hpp"

namespace moecl::test {

namespace {

constexpr std::int64_t tokens = 3, experts = 32;

void add(StreamView stream, const RouterSpec& spec, const std::vector<double>& bias, const std::string& shape,
         std::vector<SelfTestResult>& results) {
  const std::vector<double> logits = rounded(DType::f32, normal(tokens * experts, 1));
  const DeviceTensor x(stream, DType::f32, {tokens, experts}, logits);
  const DeviceTensor b(stream, DType::f32, {experts}, bias.empty() ? std::vector<double>(experts) : bias);
  const DeviceTensor ids(stream, DType::i32, {tokens, spec.top_k}), weights(stream, DType::f32, {tokens, spec.top_k});
  gating_top_k::enqueue(stream, {x, bias.empty() ? TensorView() : TensorView(b), ids, weights}, spec);
  std::vector<double> expected_ids, expected_weights;
  for (auto row = logits.begin(); row != logits.end(); row += experts) {
    const oracle::TopK chosen = oracle::gating_top_k({row, row + experts}, bias, spec);
    expected_ids.insert(expected_ids.end(), chosen.ids.begin(), chosen.ids.end());
    expected_weights.insert(expected_weights.end(), chosen.weights.begin(), chosen.weights.end());
  }
  results.push_back({"gating_top_k", "ids", shape, relative_error(ids.values(stream), expected_ids), 0});
  results.push_back({"gating_top_k", "weights", shape, relative_error(weights.values(stream), expected_weights), 2e-6});
}

}  // namespace

std::vector<SelfTestResult> self_test_gating_top_k(StreamView stream) {
  RouterSpec grouped{4, ScoreFunction::sigmoid}, mixer{2, ScoreFunction::sparse_mixer, ScoreOrder::after_top_k};
  grouped.groups = 8;
  grouped.kept_groups = 3;
  grouped.group_score = GroupScore::sum_of_top_2;
  grouped.renormalise = true;
  mixer.mixer_jitter = 0.1F;
  std::vector<SelfTestResult> results;
  add(stream, grouped, rounded(DType::f32, normal(experts, 2)), "f32[3, 32] top 4, 3 of 8 groups", results);
  add(stream, mixer, {}, "f32[3, 32] sparse mixer", results);
  return results;
}

}  // namespace moecl::test
