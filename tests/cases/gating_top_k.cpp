#include "tests/cases/gating_top_k.hpp"

#include <fmt/format.h>

#include <utility>

#include "tests/cases/self_test.hpp"

namespace moecl::test {

std::string GatingTopKCase::describe() const {
  return fmt::format("{}[{}, {}] {}{}", name(dtype), tokens(), experts,
                     spec.score == ScoreFunction::sparse_mixer ? "sparse mixer" : fmt::format("top {}", spec.top_k),
                     spec.groups > 1 ? fmt::format(", {} of {} groups", spec.kept_groups, spec.groups) : "");
}

oracle::TopK GatingTopKCase::expected() const {
  const std::vector<double> stored = rounded(dtype, logits), stored_bias = rounded(dtype, bias);
  oracle::TopK all;
  for (auto row = stored.begin(); row != stored.end(); row += experts) {
    const oracle::TopK chosen = oracle::gating_top_k({row, row + experts}, stored_bias, spec);
    all.ids.insert(all.ids.end(), chosen.ids.begin(), chosen.ids.end());
    all.weights.insert(all.weights.end(), chosen.weights.begin(), chosen.weights.end());
  }
  return all;
}

GatingTopKCase::Args GatingTopKCase::bring(CaseTensors& tensors) const {
  Args args;
  const std::int64_t top_k = spec.top_k;
  args.logits = tensors.input(dtype, {tokens(), experts}, logits);
  args.selection_bias = tensors.optional_input(dtype, {experts}, bias);
  args.ids = tensors.output(DType::i32, {tokens(), top_k});
  args.weights = tensors.output(dtype, {tokens(), top_k});
  return args;
}

void GatingTopKCase::enqueue(StreamView stream, const Args& args, std::int32_t lanes) const {
  gating_top_k::enqueue(stream, args, spec, {lanes});
}

std::vector<Compared> GatingTopKCase::compare(const CaseTensors& tensors, const Args& args,
                                              const Expected& expected) const {
  return {tensors.compare("ids", args.ids, expected.ids),
          tensors.compare("weights", args.weights, expected.weights, 2e-6 + storage_error(dtype), spec.top_k)};
}

std::vector<SelfTestResult> self_test_gating_top_k(StreamView stream) {
  constexpr std::int64_t experts = 32;
  const std::vector<double> logits = normal(3 * experts, 1);
  RouterSpec grouped{4, ScoreFunction::sigmoid}, mixer{2, ScoreFunction::sparse_mixer, ScoreOrder::after_top_k};
  grouped.groups = 8;
  grouped.kept_groups = 3;
  grouped.group_score = GroupScore::sum_of_top_2;
  grouped.renormalise = true;
  mixer.mixer_jitter = 0.1F;
  std::vector<SelfTestResult> results =
      self_test(stream, "gating_top_k", "", GatingTopKCase{experts, logits, normal(experts, 2), grouped});
  append(results, self_test(stream, "gating_top_k", "", GatingTopKCase{experts, logits, {}, mixer}));
  return results;
}

}  // namespace moecl::test
