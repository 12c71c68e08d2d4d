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

}  // namespace
}  // namespace moecl::bench
