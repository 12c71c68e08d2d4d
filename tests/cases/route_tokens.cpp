#include "tests/cases/route_tokens.hpp"

#include <fmt/format.h>

#include <utility>

#include "tests/cases/gating_top_k.hpp"
#include "tests/cases/self_test.hpp"

namespace moecl::test {

std::string RouteTokensCase::describe() const {
  return fmt::format("f32[{}, {}] top {}", tokens(), experts, spec.top_k);
}

RouteTokensCase::Routed RouteTokensCase::expected() const {
  oracle::TopK chosen = GatingTopKCase{experts, logits, bias, spec}.expected();
  for (std::size_t slot = 0; slot < chosen.ids.size() && !finished.empty(); ++slot)
    if (finished[slot / static_cast<std::size_t>(spec.top_k)] != 0) chosen.ids[slot] = -1;
  Routed out{std::move(chosen.ids), std::move(chosen.weights), {}};
  out.sort = oracle::expert_sort(out.ids, 0, experts, experts, rows_per_expert);
  return out;
}

RouteTokensOperands::RouteTokensOperands(StreamView stream, RouteTokensCase of, Guards guards)
    : CaseOperands(stream, guards), case_(std::move(of)) {
  const std::int64_t tokens = case_.tokens(), top_k = case_.spec.top_k, slots = tokens * top_k;
  const std::int64_t rows = case_.rows_per_expert == 0 ? slots : case_.experts * case_.rows_per_expert;
  args.gating.logits = input(DType::f32, {tokens, case_.experts}, case_.logits);
  args.gating.selection_bias = optional_input(DType::f32, {case_.experts}, case_.bias);
  args.gating.ids = output(DType::i32, {tokens, top_k});
  args.gating.weights = output(DType::f32, {tokens, top_k});
  args.gating.finished = optional_input(DType::u8, {tokens}, doubles(case_.finished));
  args.gating.finished_id = -1;
  args.sort.ids = args.gating.ids;
  args.sort.end_expert = args.sort.total_experts = case_.experts;
  args.sort.rows_per_expert = case_.rows_per_expert;
  args.sort.row_ends = output(DType::i32, {case_.experts});
  args.sort.sorted_slots = output(DType::i32, {rows}, std::vector<double>(static_cast<std::size_t>(rows), -1));
  args.sort.slot_rows = output(DType::i32, {slots});
  args.sort.fault = output(DType::i32, {4}, std::vector<double>(4));
}

std::vector<Compared> RouteTokensOperands::run(std::int32_t /*lanes*/) {
  if (!expected_) {
    expected_ = case_.expected();
    expected_->sort.sorted_slots.resize(static_cast<std::size_t>(args.sort.sorted_slots.shape[0]), -1);
  }
  renew();
  route_tokens::enqueue(stream(), args, case_.spec);
  const oracle::SortedSlots& sort = expected_->sort;
  return {
      worst_of("slots",
               {compare("ids", args.gating.ids, expected_->ids), compare("row_ends", args.sort.row_ends, sort.row_ends),
                compare("sorted_slots", args.sort.sorted_slots, sort.sorted_slots),
                compare("slot_rows", args.sort.slot_rows, sort.slot_rows),
                compare("fault", args.sort.fault,
                        std::vector<std::int32_t>{sort.fault_code, sort.fault_slot, sort.fault_value, 0})}),
      compare("weights", args.gating.weights, expected_->weights, 2e-6, case_.spec.top_k)};
}

std::vector<SelfTestResult> self_test_route_tokens(StreamView stream) {
  return self_test<RouteTokensOperands>(stream, "route_tokens", "", {12, normal(5 * 12, 1), {}, {2}});
}

}  // namespace moecl::test
