#include "tests/cases/route_tokens.hpp"

#include <fmt/format.h>

#include <utility>

#include "tests/cases/gating_top_k.hpp"
#include "tests/cases/self_test.hpp"

namespace moecl::test {

std::string RouteTokensCase::describe() const {
  return fmt::format("f32[{}, {}] top {}", tokens(), experts, spec.top_k);
}

RouteTokensCase::Expected RouteTokensCase::expected() const {
  oracle::TopK chosen = GatingTopKCase{experts, logits, bias, spec}.expected();
  for (std::size_t slot = 0; slot < chosen.ids.size() && !finished.empty(); ++slot)
    if (finished[slot / static_cast<std::size_t>(spec.top_k)] != 0) chosen.ids[slot] = -1;
  Expected out{std::move(chosen.ids), std::move(chosen.weights), {}};
  out.sort = oracle::expert_sort(out.ids, 0, all_experts(), all_experts(), rows_per_expert);
  out.sort.sorted_slots.resize(static_cast<std::size_t>(rows()), -1);
  return out;
}

RouteTokensCase::Args RouteTokensCase::bring(CaseTensors& tensors) const {
  Args args;
  const std::int64_t top_k = spec.top_k;
  args.gating.logits = tensors.input(DType::f32, {tokens(), experts}, logits);
  args.gating.selection_bias = tensors.optional_input(DType::f32, {experts}, bias);
  args.gating.ids = tensors.output(DType::i32, {tokens(), top_k});
  args.gating.weights = tensors.output(DType::f32, {tokens(), top_k});
  args.gating.finished = tensors.optional_input(DType::u8, {tokens()}, doubles(finished));
  args.gating.finished_id = -1;
  args.sort.ids = args.gating.ids;
  args.sort.end_expert = args.sort.total_experts = all_experts();
  args.sort.rows_per_expert = rows_per_expert;
  args.sort.row_ends = tensors.output(DType::i32, {all_experts()});
  args.sort.sorted_slots =
      tensors.output(DType::i32, {rows()}, std::vector<double>(static_cast<std::size_t>(rows()), -1));
  args.sort.slot_rows = tensors.output(DType::i32, {tokens() * top_k});
  args.sort.fault = tensors.output(DType::i32, {4}, std::vector<double>(4));
  return args;
}

void RouteTokensCase::enqueue(StreamView stream, const Args& args, std::int32_t /*lanes*/) const {
  route_tokens::enqueue(stream, args, spec);
}

std::vector<Compared> RouteTokensCase::compare(const CaseTensors& tensors, const Args& args,
                                               const Expected& expected) const {
  const oracle::SortedSlots& sort = expected.sort;
  return {worst_of("slots",
                   {tensors.compare("ids", args.gating.ids, expected.ids),
                    tensors.compare("row_ends", args.sort.row_ends, sort.row_ends),
                    tensors.compare("sorted_slots", args.sort.sorted_slots, sort.sorted_slots),
                    tensors.compare("slot_rows", args.sort.slot_rows, sort.slot_rows),
                    tensors.compare("fault", args.sort.fault,
                                    std::vector<std::int32_t>{sort.fault_code, sort.fault_slot, sort.fault_value, 0})}),
          tensors.compare("weights", args.gating.weights, expected.weights, 2e-6, spec.top_k)};
}

std::vector<SelfTestResult> self_test_route_tokens(StreamView stream) {
  return self_test(stream, "route_tokens", "", RouteTokensCase{12, normal(5 * 12, 1), {}, {2}});
}

}  // namespace moecl::test
