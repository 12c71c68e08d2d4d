#include "bench/device_time.hpp"
#include "tests/cases/combine.hpp"

namespace moecl::bench {
namespace {

/// Top 8 of a 2048-wide model: f32 rows of the experts into bf16 tokens.
void combine_tokens(benchmark::State& state) {
  const std::int64_t top_k = 8, hidden = 2048, slots = state.range(0) * top_k;
  test::CombineCase of{{hidden,
                        top_k,
                        test::normal(static_cast<std::size_t>(slots * hidden), 1),
                        {},
                        test::normal(static_cast<std::size_t>(slots), 2),
                        {},
                        {}},
                       DType::f32,
                       DType::bf16};
  for (std::int64_t i = 0; i < slots; ++i) of.in.slot_rows.push_back(static_cast<std::int32_t>(i * 7919 % slots));
  const test::OperandsOf<test::CombineCase> tokens(stream(), std::move(of));
  measure(state, combine::cost(tokens.args), [&] { combine::enqueue(stream(), tokens.args); });
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
