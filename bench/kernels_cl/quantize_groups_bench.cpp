#include "bench/device_time.hpp"
#include "tests/cases/quantize_groups.hpp"

namespace moecl::bench {
namespace {

using quantize_groups::ScaleRule;

/// Hidden states of Qwen3-30B-A3B in bf16. Formats of 8 bits give codes, all others give numbers.
void quantize(benchmark::State& state, CodeType format, std::int64_t group, ScaleRule rule) {
  const std::int64_t hidden = 2048;
  test::QuantizeGroupsCase of{
      hidden, test::normal(static_cast<std::size_t>(state.range(0) * hidden), 1), {}, DType::bf16};
  of.q = format == CodeType::f8_e4m3 ? DType::f8_e4m3 : format == CodeType::i8 ? DType::i8 : DType::f32;
  of.rules.format = format;
  of.rules.group = group;
  of.rules.rule = rule;
  const test::OperandsOf<test::QuantizeGroupsCase> rows(stream(), std::move(of));
  measure(state, quantize_groups::cost(rows.args), [&] { quantize_groups::enqueue(stream(), rows.args); });
}
void rows(benchmark::internal::Benchmark* of) { of->ArgName("N")->Arg(1)->Arg(128)->Arg(4096)->UseManualTime(); }
BENCHMARK_CAPTURE(quantize, i8, CodeType::i8, 0, ScaleRule::ratio)->Name("quantize_groups/bf16/i8/token")->Apply(rows);
BENCHMARK_CAPTURE(quantize, e4m3, CodeType::f8_e4m3, 0, ScaleRule::ratio)
    ->Name("quantize_groups/bf16/e4m3/token")
    ->Apply(rows);
BENCHMARK_CAPTURE(quantize, e4m3_128, CodeType::f8_e4m3, 128, ScaleRule::ratio)
    ->Name("quantize_groups/bf16/e4m3/group:128")
    ->Apply(rows);
BENCHMARK_CAPTURE(quantize, mxfp8, CodeType::f8_e4m3, 32, ScaleRule::mx_floor)
    ->Name("quantize_groups/bf16/mxfp8")
    ->Apply(rows);
BENCHMARK_CAPTURE(quantize, nvfp4, CodeType::f4_e2m1, 16, ScaleRule::e4m3)
    ->Name("quantize_groups/bf16/nvfp4_numbers")
    ->Apply(rows);

}  // namespace
}  // namespace moecl::bench
