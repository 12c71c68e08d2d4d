#include "tests/cases/route_tokens.hpp"

#include "tests/cases/self_test.hpp"
#include "tests/oracle/expert_sort.hpp"
#include "tests/oracle/gating_top_k.hpp"

namespace moecl::test {

std::vector<SelfTestResult> self_test_route_tokens(StreamView stream) {
  constexpr std::int64_t tokens = 5, top_k = 2;
  constexpr std::int32_t experts = 12;
  const std::vector<double> values = rounded(DType::f32, normal(tokens * experts, 1));
  const RoutedTokens routed(stream, tokens, experts, top_k, values);
  route_tokens::enqueue(stream, routed.args(), {top_k});

  std::vector<std::int32_t> chosen;
  std::vector<double> expected_weights;
  for (auto row = values.begin(); row != values.end(); row += experts) {
    const oracle::TopK best = oracle::gating_top_k({row, row + experts}, {}, {top_k});
    chosen.insert(chosen.end(), best.ids.begin(), best.ids.end());
    expected_weights.insert(expected_weights.end(), best.weights.begin(), best.weights.end());
  }
  const oracle::SortedSlots sort = oracle::expert_sort(chosen, 0, experts, experts, 0);
  const auto same = [&](const DeviceTensor& tensor, const std::vector<std::int32_t>& expected) {
    return tensor.values(stream) == std::vector<double>(expected.begin(), expected.end());
  };
  const bool sorts = same(routed.ids, chosen) && same(routed.row_ends, sort.row_ends) &&
                     same(routed.sorted_slots, sort.sorted_slots) && same(routed.slot_rows, sort.slot_rows);
  return {{"route_tokens", "slots", "f32[5, 12] top 2", sorts ? 0.0 : 1.0, 0},
          {"route_tokens", "weights", "f32[5, 12] top 2",
           relative_error(routed.weights.values(stream), expected_weights), 2e-6}};
}

}  // namespace moecl::test
