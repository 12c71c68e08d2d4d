#include "bench/host/npu_call.hpp"
#include "host/npu/describe_activation.hpp"
#include "tests/cases/device_memory.hpp"

namespace moecl::bench {
namespace {

/// Rows of Qwen3-30B-A3B's gate and up products (moe_intermediate_size 768).
void swiglu(benchmark::State& state) {
  const std::int64_t rows = state.range(0), width = 2 * 768;
  const test::DeviceTensor x(stream(), DType::bf16, {rows, width},
                             test::normal(static_cast<std::size_t>(rows * width), 1));
  npu::SwigluArgs args;
  args.x = x;
  measure_operator(state, args);
}
BENCHMARK(swiglu)->Name("npu_swiglu/bf16/I:768")->ArgName("rows")->Arg(8)->Arg(1024)->Arg(32768)->UseManualTime();

/// From the int32 sums of the same model's gate and up products to int8 rows.
template <class Args>
void dequant_swiglu_quant(benchmark::State& state) {
  const std::int64_t rows = state.range(0), width = 2 * 768;
  std::vector<double> sums = test::normal(static_cast<std::size_t>(rows * width), 1);
  for (double& sum : sums) sum *= 3000;
  const test::DeviceTensor x(stream(), DType::i32, {rows, width}, sums),
      weight_scale(stream(), DType::f32, {width}, std::vector<double>(static_cast<std::size_t>(width), 1e-3)),
      activation_scale(stream(), DType::f32, {rows, 1}, std::vector<double>(static_cast<std::size_t>(rows), 1.0));
  Args args;
  args.x = x;
  args.weight_scale = weight_scale;
  args.activation_scale = activation_scale;
  args.quant_mode = 1;
  measure_operator(state, args);
}
BENCHMARK(dequant_swiglu_quant<npu::DequantSwigluQuantArgs>)
    ->Name("npu_dequant_swiglu_quant/i32/I:768")
    ->ArgName("rows")
    ->Arg(8)
    ->Arg(1024)
    ->Arg(8192)
    ->UseManualTime();
BENCHMARK(dequant_swiglu_quant<npu::CAscendDequantSwigluQuantArgs>)
    ->Name("_C_ascend.npu_dequant_swiglu_quant/i32/I:768")
    ->ArgName("rows")
    ->Arg(8)
    ->Arg(1024)
    ->Arg(8192)
    ->UseManualTime();

}  // namespace
}  // namespace moecl::bench
