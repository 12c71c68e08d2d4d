#include "tests/oracle/expert_sort.hpp"

#include <moecl/expert_sort.hpp>

#include "tests/cases/device_memory.hpp"
#include "tests/cases/self_test.hpp"

namespace moecl::test {
namespace {

SelfTestResult sort_slots(StreamView stream, const char* variant, std::int64_t tokens) {
  constexpr std::int64_t top_k = 2;
  constexpr std::int32_t experts = 13;
  const std::int64_t slots = tokens * top_k;
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < slots; ++i) ids.push_back(static_cast<std::int32_t>(i * i % 7 + i % 5));
  const oracle::SortedSlots expected = oracle::expert_sort(ids, 0, experts, experts, 0);
  const DeviceTensor device_ids(stream, DType::i32, {tokens, top_k}, {ids.begin(), ids.end()});
  const DeviceTensor row_ends(stream, DType::i32, {experts}), sorted(stream, DType::i32, {slots}),
      rows(stream, DType::i32, {slots});
  const Buffer scratch(*stream.context, expert_sort::scratch_bytes(slots, experts, stream.device->caps) + 1);
  expert_sort::Args args;
  args.ids = device_ids;
  args.end_expert = args.total_experts = experts;
  args.row_ends = row_ends;
  args.sorted_slots = sorted;
  args.slot_rows = rows;
  args.scratch = scratch.view();
  expert_sort::enqueue(stream, args);
  const bool same =
      row_ends.values(stream) == std::vector<double>(expected.row_ends.begin(), expected.row_ends.end()) &&
      sorted.values(stream) == std::vector<double>(expected.sorted_slots.begin(), expected.sorted_slots.end()) &&
      rows.values(stream) == std::vector<double>(expected.slot_rows.begin(), expected.slot_rows.end());
  return {"expert_sort", variant, device_ids.view.describe() + " E=13", same ? 0.0 : 1.0, 0};
}

}  // namespace

std::vector<SelfTestResult> self_test_expert_sort(StreamView stream) {
  return {sort_slots(stream, "one_chunk", 5), sort_slots(stream, "chunks", 8200)};
}

}  // namespace moecl::test
