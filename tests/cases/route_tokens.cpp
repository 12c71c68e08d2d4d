#include "tests/cases/route_tokens.hpp"

#include <moecl/buffer.hpp>

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "tests/cases/gating_top_k.hpp"
#include "tests/cases/self_test.hpp"

namespace moecl::test {

namespace {

/// [E, H] as packed panels of 64 columns, [ceil(E / 64), H, 64].
std::vector<double> panels(const std::vector<double>& matrix, std::int64_t experts, std::int64_t hidden) {
  std::vector<double> packed(static_cast<std::size_t>((experts + 63) / 64 * 64 * hidden));
  for (std::int64_t e = 0; e < experts; ++e)
    for (std::int64_t h = 0; h < hidden; ++h)
      packed[static_cast<std::size_t>((e / 64 * hidden + h) * 64 + e % 64)] =
          matrix[static_cast<std::size_t>(e * hidden + h)];
  return packed;
}

}  // namespace

RouteTokensCase RouteTokensCase::routed(std::int64_t tokens, std::int32_t experts, std::int64_t hidden,
                                        const RouterSpec& spec, DType dtype, bool biased) {
  RouteTokensCase made{experts, {}, {}, spec};
  made.hidden = hidden, made.dtype = dtype;
  made.x = rounded(dtype, normal(static_cast<std::size_t>(tokens * hidden), 1));
  made.router = normal(static_cast<std::size_t>(experts * hidden), 2);
  for (double& weight : made.router) weight /= std::sqrt(static_cast<double>(hidden));
  made.router = rounded(dtype, made.router);
  if (biased) made.router_bias = normal(static_cast<std::size_t>(experts), 3);
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t e = 0; e < experts; ++e) {
      double logit = biased ? made.router_bias[static_cast<std::size_t>(e)] : 0;
      for (std::int64_t h = 0; h < hidden; ++h)
        logit +=
            made.x[static_cast<std::size_t>(t * hidden + h)] * made.router[static_cast<std::size_t>(e * hidden + h)];
      made.logits.push_back(logit);
    }
  return made;
}

std::string RouteTokensCase::describe() const {
  const std::string to = fmt::format("f32[{}, {}] top {}", tokens(), experts, spec.top_k);
  return hidden == 0 ? to : fmt::format("{}[{}, {}] to {}", name(dtype), tokens(), hidden, to);
}

RouteTokensCase::Expected RouteTokensCase::expected() const {
  oracle::TopK chosen = GatingTopKCase{experts, logits, bias, spec}.expected();
  for (std::size_t slot = 0; slot < chosen.ids.size() && !finished.empty(); ++slot)
    if (finished[slot / static_cast<std::size_t>(spec.top_k)] != 0) chosen.ids[slot] = finished_id;
  Expected out{std::move(chosen.ids), std::move(chosen.weights), {}};
  out.sort = oracle::expert_sort(out.ids, 0, all_experts(), all_experts(), rows_per_expert);
  out.sort.sorted_slots.resize(static_cast<std::size_t>(rows()), -1);
  return out;
}

RouteTokensCase::Args RouteTokensCase::bring(CaseTensors& tensors) const {
  Args args;
  const std::int64_t top_k = spec.top_k;
  if (hidden == 0) {
    args.gating.logits = tensors.input(DType::f32, {tokens(), experts}, logits);
  } else {
    args.gating.logits = tensors.output(DType::f32, {tokens(), experts});
    const std::vector<unsigned char> packed = encode(dtype, panels(router, experts, hidden));
    args.router.a = tensors.input(dtype, {tokens(), hidden}, x);
    args.router.weights.buffer = tensors.scratch(packed.size());
    write_blocking(tensors.stream(), args.router.weights.buffer, packed.data(), packed.size());
    args.router.weights.type = dtype == DType::f16 ? CodeType::f16 : CodeType::bf16;
    args.router.weights.experts = 1, args.router.weights.n = experts, args.router.weights.k = hidden;
    args.router.bias = tensors.optional_input(DType::f32, {1, experts}, router_bias);
    args.router.out = args.gating.logits;
  }
  args.gating.selection_bias = tensors.optional_input(DType::f32, {experts}, bias);
  args.gating.ids = tensors.output(DType::i32, {tokens(), top_k});
  args.gating.weights = tensors.output(DType::f32, {tokens(), top_k});
  args.gating.finished = tensors.optional_input(DType::u8, {tokens()}, doubles(finished));
  args.gating.finished_id = finished_id;
  args.sort.ids = args.gating.ids;
  args.sort.end_expert = args.sort.total_experts = all_experts();
  args.sort.rows_per_expert = rows_per_expert;
  args.sort.row_ends = tensors.output(DType::i32, {all_experts()});
  args.sort.sorted_slots =
      tensors.output(DType::i32, {rows()}, std::vector<double>(static_cast<std::size_t>(rows()), -1));
  args.sort.slot_rows = tensors.output(DType::i32, {tokens() * top_k});
  args.scratch = args.router.scratch = tensors.scratch(1 << 20);
  args.sort.scratch = tensors.scratch(1 << 20);
  args.sort.fault = tensors.output(DType::i32, {4}, std::vector<double>(4));
  return args;
}

void RouteTokensCase::enqueue(StreamView stream, const Args& args, std::int32_t /*lanes*/) const {
  route_tokens::enqueue(stream, args, spec);
}

std::vector<Compared> RouteTokensCase::compare(const CaseTensors& tensors, const Args& args,
                                               const Expected& expected) const {
  const oracle::SortedSlots& sort = expected.sort;
  // An entry past the rows is untouched, or with chunks holds its own index.
  std::vector<std::int32_t> slots = sort.sorted_slots;
  const std::vector<double> sorted = tensors.values(args.sort.sorted_slots);
  for (std::size_t i = 0; i < slots.size(); ++i)
    if (slots[i] == -1 && sorted[i] == static_cast<double>(i)) slots[i] = static_cast<std::int32_t>(i);
  std::vector<Compared> all = {
      worst_of("slots",
               {tensors.compare("ids", args.gating.ids, expected.ids),
                tensors.compare("row_ends", args.sort.row_ends, sort.row_ends),
                tensors.compare("sorted_slots", args.sort.sorted_slots, slots),
                tensors.compare("slot_rows", args.sort.slot_rows, sort.slot_rows),
                tensors.compare("fault", args.sort.fault,
                                std::vector<std::int32_t>{sort.fault_code, sort.fault_slot, sort.fault_value, 0})}),
      tensors.compare("weights", args.gating.weights, expected.weights, hidden == 0 ? 2e-6 : 1e-5, spec.top_k)};
  if (hidden != 0) all.push_back(tensors.compare("logits", args.gating.logits, logits, 2e-6));
  return all;
}

std::vector<SelfTestResult> self_test_route_tokens(StreamView stream) {
  std::vector<SelfTestResult> results =
      self_test(stream, "route_tokens", "", RouteTokensCase{12, normal(5 * 12, 1), {}, {2}});
  const std::vector<SelfTestResult> routed =
      self_test(stream, "route_tokens", "with the router", RouteTokensCase::routed(5, 12, 200, {2}));
  const std::vector<SelfTestResult> chunks =
      self_test(stream, "route_tokens", "chunks", RouteTokensCase{12, normal(130 * 12, 1), {}, {2}});
  for (const std::vector<SelfTestResult>& more : {routed, chunks})
    results.insert(results.end(), more.begin(), more.end());
  return results;
}

}  // namespace moecl::test
