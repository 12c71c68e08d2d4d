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

GatingTopKOperands::GatingTopKOperands(StreamView stream, GatingTopKCase of, Guards guards)
    : CaseOperands(stream, guards), case_(std::move(of)) {
  const std::int64_t tokens = case_.tokens(), top_k = case_.spec.top_k;
  args.logits = input(case_.dtype, {tokens, case_.experts}, case_.logits);
  args.selection_bias = optional_input(case_.dtype, {case_.experts}, case_.bias);
  args.ids = output(DType::i32, {tokens, top_k});
  args.weights = output(case_.dtype, {tokens, top_k});
}

std::vector<Compared> GatingTopKOperands::run(std::int32_t lanes) {
  if (!expected_) expected_ = case_.expected();
  renew();
  gating_top_k::enqueue(stream(), args, case_.spec, {lanes});
  return {compare("ids", args.ids, expected_->ids),
          compare("weights", args.weights, expected_->weights, 2e-6 + storage_error(case_.dtype), case_.spec.top_k)};
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
      self_test<GatingTopKOperands>(stream, "gating_top_k", "", {experts, logits, normal(experts, 2), grouped});
  append(results, self_test<GatingTopKOperands>(stream, "gating_top_k", "", {experts, logits, {}, mixer}));
  return results;
}

}  // namespace moecl::test
