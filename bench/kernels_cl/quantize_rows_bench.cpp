#include "bench/device_time.hpp"
#include "tests/cases/quantize_rows.hpp"

namespace moecl::bench {
namespace {

template <DType dtype>
void quantize(benchmark::State& state) {
  const std::int64_t hidden = 2048;
  test::QuantizeRowsCase of{hidden, test::normal(static_cast<std::size_t>(state.range(0) * hidden), 1)};
  of.dtype = dtype;
  const test::OperandsOf<test::QuantizeRowsCase> rows(stream(), std::move(of));
  measure(state, quantize_rows::cost(rows.args), [&] { quantize_rows::enqueue(stream(), rows.args); });
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
