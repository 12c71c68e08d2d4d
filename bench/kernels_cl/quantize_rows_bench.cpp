#include <moecl/quantize_rows.hpp>

#include "bench/device_time.hpp"
#include "tests/cases/device_memory.hpp"

namespace moecl::bench {
namespace {

template <DType dtype>
void quantize(benchmark::State& state) {
  const std::int64_t rows = state.range(0), hidden = 2048;
  const test::DeviceTensor x(stream(), dtype, {rows, hidden}, test::normal(static_cast<std::size_t>(rows * hidden), 1));
  const test::DeviceTensor q(stream(), DType::i8, {rows, hidden}), scale(stream(), DType::f32, {rows});
  const quantize_rows::Args args{x, {}, 0, q, scale};
  measure(state, quantize_rows::cost(args), [&] { quantize_rows::enqueue(stream(), args); });
}
BENCHMARK(quantize<DType::f32>)
    ->Name("quantize_rows/f32/H:2048")
    ->ArgName("N")
    ->Arg(1)
    ->Arg(128)
    ->Arg(4096)
    ->Arg(16384)
    ->UseManualTime();
BENCHMARK(quantize<DType::bf16>)
    ->Name("quantize_rows/bf16/H:2048")
    ->ArgName("N")
    ->Arg(1)
    ->Arg(128)
    ->Arg(4096)
    ->Arg(16384)
    ->UseManualTime();

}  // namespace
}  // namespace moecl::bench
