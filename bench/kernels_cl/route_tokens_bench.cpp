#include <moecl/route_tokens.hpp>

#include "bench/device_time.hpp"
#include "tests/cases/device_memory.hpp"

namespace moecl::bench {
namespace {

/// As Qwen3-30B-A3B routes.
void route(benchmark::State& state) {
  const std::int64_t tokens = state.range(0), top_k = 8, slots = tokens * top_k;
  constexpr std::int32_t experts = 128;
  RouterSpec spec{top_k};
  spec.renormalise = true;
  const test::DeviceTensor logits(stream(), DType::f32, {tokens, experts},
                                  test::normal(static_cast<std::size_t>(tokens * experts), 1)),
      ids(stream(), DType::i32, {tokens, top_k}), weights(stream(), DType::f32, {tokens, top_k}),
      row_ends(stream(), DType::i32, {experts}), sorted(stream(), DType::i32, {slots}),
      slot_rows(stream(), DType::i32, {slots});
  route_tokens::Args args;
  args.gating = {logits, {}, ids, weights};
  args.sort.ids = ids;
  args.sort.end_expert = args.sort.total_experts = experts;
  args.sort.row_ends = row_ends;
  args.sort.sorted_slots = sorted;
  args.sort.slot_rows = slot_rows;
  measure(state, route_tokens::cost(args), [&] { route_tokens::enqueue(stream(), args, spec); });
}
BENCHMARK(route)->Name("route_tokens/softmax/E:128/K:8")->ArgName("T")->Arg(1)->Arg(16)->UseManualTime();

}  // namespace
}  // namespace moecl::bench
