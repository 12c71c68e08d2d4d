#include <moecl/fp4.hpp>
#include <moecl/fp8.hpp>
#include <moecl/mx_quantize.hpp>

#include "bench/device_time.hpp"
#include "tests/cases/device_memory.hpp"

namespace moecl::bench {
namespace {

/// Hidden states of Qwen3-30B-A3B in bf16, blocks along the hidden axis.
void quantize(benchmark::State& state, const Minifloat& format) {
  const std::int64_t rows = state.range(0), hidden = 2048;
  const test::DeviceTensor x(stream(), DType::bf16, {rows, hidden, 1},
                             test::normal(static_cast<std::size_t>(rows * hidden), 1));
  const test::DeviceTensor y(stream(), DType::u8, {rows, format.bits() == 4 ? hidden / 2 : hidden, 1}),
      scale(stream(), DType::u8, {rows, hidden / 64, 1, 2});
  const mx_quantize::Args args{x, format, y, scale};
  measure(state, mx_quantize::cost(args), [&] { mx_quantize::enqueue(stream(), args); });
}
BENCHMARK_CAPTURE(quantize, e4m3, fp8_e4m3fn)
    ->Name("mx_quantize/bf16/e4m3/H:2048")
    ->ArgName("N")
    ->Arg(1)
    ->Arg(128)
    ->Arg(4096)
    ->UseManualTime();
BENCHMARK_CAPTURE(quantize, e2m1, fp4_e2m1)
    ->Name("mx_quantize/bf16/e2m1/H:2048")
    ->ArgName("N")
    ->Arg(1)
    ->Arg(128)
    ->Arg(4096)
    ->UseManualTime();

}  // namespace
}  // namespace moecl::bench
