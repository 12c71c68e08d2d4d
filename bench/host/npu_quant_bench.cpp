#include "bench/host/npu_call.hpp"
#include "host/npu/describe_quant.hpp"
#include "tests/cases/device_memory.hpp"

namespace moecl::bench {
namespace {

/// Hidden states of Qwen3-30B-A3B.
template <class Args>
void quantize(benchmark::State& state) {
  const std::int64_t rows = state.range(0), hidden = 2048;
  const test::DeviceTensor x(stream(), DType::bf16, {rows, hidden},
                             test::normal(static_cast<std::size_t>(rows * hidden), 1));
  Args args;
  args.x = x;
  measure_operator(state, args);
}
BENCHMARK(quantize<npu::DynamicQuantArgs>)
    ->Name("npu_dynamic_quant/bf16/H:2048")
    ->ArgName("rows")
    ->Arg(1)
    ->Arg(256)
    ->Arg(4096)
    ->UseManualTime();
BENCHMARK(quantize<npu::DynamicQuantAsymmetricArgs>)
    ->Name("npu_dynamic_quant_asymmetric/bf16/H:2048")
    ->ArgName("rows")
    ->Arg(1)
    ->Arg(256)
    ->Arg(4096)
    ->UseManualTime();
BENCHMARK(quantize<npu::DynamicMxQuantArgs>)
    ->Name("npu_dynamic_mx_quant/bf16/H:2048")
    ->ArgName("rows")
    ->Arg(1)
    ->Arg(256)
    ->Arg(4096)
    ->UseManualTime();

}  // namespace
}  // namespace moecl::bench
