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

ExpertSortOperands::ExpertSortOperands(StreamView stream, ExpertSortCase of, Guards guards)
    : CaseOperands(stream, guards), case_(std::move(of)) {
  const std::int64_t slots = case_.tokens * case_.top_k;
  const std::int32_t experts = case_.end - case_.first;
  const std::int64_t rows = case_.rows_per_expert == 0 ? slots : experts * case_.rows_per_expert;
  scratch_ = Buffer(*stream.context, expert_sort::scratch_bytes(slots, experts, stream.device->caps) + 1);
  args.ids = input(DType::i32, {case_.tokens, case_.top_k}, doubles(case_.ids));
  args.first_expert = case_.first;
  args.end_expert = case_.end;
  args.total_experts = case_.total;
  args.rows_per_expert = case_.rows_per_expert;
  args.may_drop = case_.may_drop;
  args.row_ends = output(DType::i32, {experts});
  args.counts = output(DType::i32, {experts});
  args.sorted_slots = output(DType::i32, {rows}, std::vector<double>(static_cast<std::size_t>(rows), -1));
  args.slot_rows = output(DType::i32, {slots});
  args.fault = output(DType::i32, {4}, std::vector<double>(4));
  args.scratch = scratch_.view();
}

std::vector<Compared> ExpertSortOperands::run(std::int32_t lanes) {
  if (!expected_) {
    expected_ =
        oracle::expert_sort(case_.ids, case_.first, case_.end, case_.total, case_.rows_per_expert, case_.may_drop);
    expected_->sorted_slots.resize(static_cast<std::size_t>(args.sorted_slots.shape[0]), -1);
  }
  renew();
  expert_sort::enqueue(stream(), args, {lanes});
  std::vector<std::int32_t> counts;
  for (std::int32_t expert = case_.first; expert < case_.end; ++expert)
    counts.push_back(static_cast<std::int32_t>(std::count(case_.ids.begin(), case_.ids.end(), expert)));
  return {worst_of("", {compare("row_ends", args.row_ends, expected_->row_ends), compare("counts", args.counts, counts),
                        compare("sorted_slots", args.sorted_slots, expected_->sorted_slots),
                        compare("slot_rows", args.slot_rows, expected_->slot_rows),
                        compare("fault", args.fault,
                                std::vector<std::int32_t>{expected_->fault_code, expected_->fault_slot,
                                                          expected_->fault_value, 0})})};
}

std::vector<SelfTestResult> self_test_expert_sort(StreamView stream) {
  std::vector<SelfTestResult> results = self_test<ExpertSortOperands>(stream, "expert_sort", "one_chunk", uneven(5));
  append(results, self_test<ExpertSortOperands>(stream, "expert_sort", "chunks", uneven(8200)));
  return results;
}

}  // namespace moecl::test
