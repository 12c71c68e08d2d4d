#include "bench/device_time.hpp"
#include "tests/cases/gather_rows.hpp"

namespace moecl::bench {
namespace {

/// Tokens of a 2048-wide bf16 model, top 8, into f32 rows.
void permute_tokens(benchmark::State& state) {
  const std::int64_t tokens = state.range(0), hidden = 2048, slots = tokens * 8;
  test::GatherRowsCase of{
      hidden, DType::bf16, DType::f32, test::normal(static_cast<std::size_t>(tokens * hidden), 1), {}, 8};
  for (std::int64_t i = 0; i < slots; ++i) of.index.push_back(static_cast<std::int32_t>(i * 7919 % slots));
  const test::OperandsOf<test::GatherRowsCase> rows(stream(), std::move(of));
  measure(state, gather_rows::cost(rows.args), [&] { gather_rows::enqueue(stream(), rows.args); });
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
