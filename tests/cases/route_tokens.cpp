#include <moecl/route_tokens.hpp>

#include "tests/cases/device_memory.hpp"
#include "tests/cases/self_test.hpp"
#include "tests/oracle/expert_sort.hpp"
#include "tests/oracle/gating_top_k.hpp"

namespace moecl::test {

std::vector<SelfTestResult> self_test_route_tokens(StreamView stream) {
  constexpr std::int64_t tokens = 5, top_k = 2, slots = tokens * top_k;
  constexpr std::int32_t experts = 12;
  const std::vector<double> values = rounded(DType::f32, normal(tokens * experts, 1));
  const DeviceTensor logits(stream, DType::f32, {tokens, experts}, values), ids(stream, DType::i32, {tokens, top_k}),
      weights(stream, DType::f32, {tokens, top_k}), row_ends(stream, DType::i32, {experts}),
      sorted(stream, DType::i32, {slots}), slot_rows(stream, DType::i32, {slots});
  route_tokens::Args args;
  args.gating = {logits, {}, ids, weights};
  args.sort.ids = ids;
  args.sort.end_expert = args.sort.total_experts = experts;
  args.sort.row_ends = row_ends;
  args.sort.sorted_slots = sorted;
  args.sort.slot_rows = slot_rows;
  route_tokens::enqueue(stream, args, {top_k});

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
  const bool sorts = same(ids, chosen) && same(row_ends, sort.row_ends) && same(sorted, sort.sorted_slots) &&
                     same(slot_rows, sort.slot_rows);
  return {
      {"route_tokens", "slots", "f32[5, 12] top 2", sorts ? 0.0 : 1.0, 0},
      {"route_tokens", "weights", "f32[5, 12] top 2", relative_error(weights.values(stream), expected_weights), 2e-6}};
}

}  // namespace moecl::test
