#include <moecl/combine.hpp>

#include "bench/device_time.hpp"
#include "tests/cases/device_memory.hpp"

namespace moecl::bench {
namespace {

/// Top 8 of a 2048-wide model: f32 rows of the experts into bf16 tokens.
void combine_tokens(benchmark::State& state) {
  const std::int64_t tokens = state.range(0), top_k = 8, hidden = 2048, slots = tokens * top_k;
  std::vector<double> slot_rows(static_cast<std::size_t>(slots));
  for (std::int64_t i = 0; i < slots; ++i)
    slot_rows[static_cast<std::size_t>(i)] = static_cast<double>(i * 7919 % slots);
  const test::DeviceTensor rows(stream(), DType::f32, {slots, hidden},
                                test::normal(static_cast<std::size_t>(slots * hidden), 1));
  const test::DeviceTensor order(stream(), DType::i32, {slots}, slot_rows),
      out(stream(), DType::bf16, {tokens, hidden});
  const test::DeviceTensor weights(stream(), DType::f32, {tokens, top_k},
                                   test::normal(static_cast<std::size_t>(slots), 2));
  combine::Args args;
  args.rows = rows;
  args.slot_rows = order;
  args.weights = weights;
  args.out = out;
  measure(state, combine::cost(args), [&] { combine::enqueue(stream(), args); });
}
BENCHMARK(combine_tokens)
    ->Name("combine/f32_to_bf16/K:8/H:2048")
    ->ArgName("T")
    ->Arg(1)
    ->Arg(16)
    ->Arg(512)
    ->Arg(2048)
    ->UseManualTime();

}  // namespace
}  // namespace moecl::bench
