#include "tests/cases/expert_sort.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tests/cases/self_test.hpp"

namespace moecl::test {
namespace {

/// One of 13 experts for each slot.
ExpertSortCase uneven(std::int64_t tokens) {
  ExpertSortCase of{tokens, 2, 0, 13, 13};
  for (std::int64_t i = 0; i < tokens * of.top_k; ++i) of.ids.push_back(static_cast<std::int32_t>(i * i % 7 + i % 5));
  return of;
}

}  // namespace

std::string ExpertSortCase::describe() const {
  return fmt::format("i32[{}, {}] E={}{}{}", tokens, top_k, total,
                     end - first != total ? fmt::format(", experts [{}, {})", first, end) : "",
                     rows_per_expert != 0 ? fmt::format(", {} rows each", rows_per_expert) : "");
}

ExpertSortCase::Args ExpertSortCase::bring(CaseTensors& tensors) const {
  Args args;
  const std::int64_t slots = tokens * top_k;
  const std::int32_t experts = end - first;
  args.ids = tensors.input(DType::i32, {tokens, top_k}, doubles(ids));
  args.first_expert = first;
  args.end_expert = end;
  args.total_experts = total;
  args.rows_per_expert = rows_per_expert;
  args.may_drop = may_drop;
  args.row_ends = tensors.output(DType::i32, {experts});
  args.counts = tensors.output(DType::i32, {experts});
  args.sorted_slots = tensors.output(DType::i32, {rows()}, std::vector<double>(static_cast<std::size_t>(rows()), -1));
  args.slot_rows = tensors.output(DType::i32, {slots});
  args.fault = tensors.output(DType::i32, {4}, std::vector<double>(4));
  args.scratch = tensors.scratch(expert_sort::scratch_bytes(slots, experts, tensors.stream().device->caps));
  return args;
}

oracle::SortedSlots ExpertSortCase::expected() const {
  oracle::SortedSlots out = oracle::expert_sort(ids, first, end, total, rows_per_expert, may_drop);
  out.sorted_slots.resize(static_cast<std::size_t>(rows()), -1);
  return out;
}

void ExpertSortCase::enqueue(StreamView stream, const Args& args, std::int32_t lanes) const {
  expert_sort::enqueue(stream, args, {lanes});
}

std::vector<Compared> ExpertSortCase::compare(const CaseTensors& tensors, const Args& args,
                                              const Expected& expected) const {
  std::vector<std::int32_t> counts;
  for (std::int32_t expert = first; expert < end; ++expert)
    counts.push_back(static_cast<std::int32_t>(std::count(ids.begin(), ids.end(), expert)));
  return {worst_of(
      "",
      {tensors.compare("row_ends", args.row_ends, expected.row_ends), tensors.compare("counts", args.counts, counts),
       tensors.compare("sorted_slots", args.sorted_slots, expected.sorted_slots),
       tensors.compare("slot_rows", args.slot_rows, expected.slot_rows),
       tensors.compare("fault", args.fault,
                       std::vector<std::int32_t>{expected.fault_code, expected.fault_slot, expected.fault_value, 0})})};
}

std::vector<SelfTestResult> self_test_expert_sort(StreamView stream) {
  std::vector<SelfTestResult> results = self_test(stream, "expert_sort", "one_chunk", uneven(5));
  append(results, self_test(stream, "expert_sort", "chunks", uneven(8200)));
  return results;
}

}  // namespace moecl::test
