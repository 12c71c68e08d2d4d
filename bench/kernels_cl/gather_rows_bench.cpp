#include <moecl/gather_rows.hpp>

#include "bench/device_time.hpp"
#include "tests/cases/device_memory.hpp"

namespace moecl::bench {
namespace {

/// Tokens of a 2048-wide bf16 model, top 8, into f32 rows.
void permute_tokens(benchmark::State& state) {
  const std::int64_t tokens = state.range(0), hidden = 2048, slots = tokens * 8;
  std::vector<double> index(static_cast<std::size_t>(slots));
  for (std::int64_t i = 0; i < slots; ++i) index[static_cast<std::size_t>(i)] = static_cast<double>(i * 7919 % slots);
  const test::DeviceTensor x(stream(), DType::bf16, {tokens, hidden},
                             test::normal(static_cast<std::size_t>(tokens * hidden), 1));
  const test::DeviceTensor order(stream(), DType::i32, {slots}, index), out(stream(), DType::f32, {slots, hidden});
  const gather_rows::Args args{x, order, 8, {}, 0, out};
  measure(state, gather_rows::cost(args), [&] { gather_rows::enqueue(stream(), args); });
}
BENCHMARK(permute_tokens)
    ->Name("gather_rows/bf16_to_f32/H:2048")
    ->ArgName("T")
    ->Arg(16)
    ->Arg(512)
    ->Arg(2048)
    ->UseManualTime();

}  // namespace
}  // namespace moecl::bench
