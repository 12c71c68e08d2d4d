#include <moecl/quantize_groups.hpp>

#include "bench/device_time.hpp"
#include "tests/cases/device_memory.hpp"

namespace moecl::bench {
namespace {

using quantize_groups::ScaleRule;

/// Hidden states of Qwen3-30B-A3B in bf16. Codes of 8 bits, else numbers.
void quantize(benchmark::State& state, CodeType format, std::int64_t group, ScaleRule rule) {
  const std::int64_t rows = state.range(0), hidden = 2048;
  const test::DeviceTensor x(stream(), DType::bf16, {rows, hidden},
                             test::normal(static_cast<std::size_t>(rows * hidden), 1));
  const DType stored = format == CodeType::f8_e4m3 ? DType::f8_e4m3 : format == CodeType::i8 ? DType::i8 : DType::f32;
  const test::DeviceTensor q(stream(), stored, {rows, hidden}),
      scale(stream(), DType::f32, {rows, group == 0 ? 1 : hidden / group});
  quantize_groups::Args args;
  args.x = x;
  args.format = format;
  args.group = group;
  args.rule = rule;
  args.q = q;
  args.scale = scale;
  measure(state, quantize_groups::cost(args), [&] { quantize_groups::enqueue(stream(), args); });
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
