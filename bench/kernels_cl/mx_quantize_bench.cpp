#include <moecl/fp4.hpp>
#include <moecl/fp8.hpp>

#include "bench/device_time.hpp"
#include "tests/cases/mx_quantize.hpp"

namespace moecl::bench {
namespace {

/// Hidden states of Qwen3-30B-A3B in bf16, blocks along the hidden axis.
void quantize(benchmark::State& state, const Minifloat& format) {
  const std::int64_t hidden = 2048;
  test::MxQuantizeCase of{
      {}, DType::bf16, hidden, 1, test::normal(static_cast<std::size_t>(state.range(0) * hidden), 1)};
  of.rules.format = format;
  const test::OperandsOf<test::MxQuantizeCase> rows(stream(), std::move(of));
  measure(state, mx_quantize::cost(rows.args), [&] { mx_quantize::enqueue(stream(), rows.args); });
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
