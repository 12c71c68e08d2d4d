#include "bench/host/npu_call.hpp"
#include "host/npu/describe_gating.hpp"
#include "tests/cases/device_memory.hpp"

namespace moecl::bench {
namespace {

test::DeviceTensor logits(std::int64_t tokens, std::int64_t experts) {
  return {stream(), DType::bf16, {tokens, experts}, test::normal(static_cast<std::size_t>(tokens * experts), 1)};
}

/// DeepSeek-V3: 256 experts, sigmoid; 4 of 8 groups, chosen by their best two scores; 8 experts per token.
void moe_gating_top_k(benchmark::State& state) {
  const test::DeviceTensor x = logits(state.range(0), 256);
  const test::DeviceTensor bias(stream(), DType::bf16, {256}, test::normal(256, 2));
  npu::MoeGatingTopKArgs args;
  args.x = x;
  args.bias = bias;
  args.k = 8;
  args.norm_type = 1;
  args.group_count = 8;
  args.k_group = 4;
  args.group_select_mode = 1;
  args.routed_scaling_factor = 2.5;
  measure_operator(state, args);
}
BENCHMARK(moe_gating_top_k)
    ->Name("npu_moe_gating_top_k/bf16/E:256/k:8")
    ->ArgName("tokens")
    ->Arg(1)
    ->Arg(256)
    ->Arg(4096)
    ->UseManualTime();

/// Qwen3-30B-A3B: 128 experts, 8 per token.
template <class Args>
void softmax(benchmark::State& state) {
  const test::DeviceTensor x = logits(state.range(0), 128);
  Args args;
  args.x = x;
  args.k = 8;
  measure_operator(state, args);
}
BENCHMARK(softmax<npu::MoeGatingTopKSoftmaxArgs>)
    ->Name("npu_moe_gating_top_k_softmax/bf16/E:128/k:8")
    ->ArgName("tokens")
    ->Arg(1)
    ->Arg(256)
    ->Arg(4096)
    ->UseManualTime();
BENCHMARK(softmax<npu::MoeGatingTopKSoftmaxV2Args>)
    ->Name("npu_moe_gating_top_k_softmax_v2/bf16/E:128/k:8")
    ->ArgName("tokens")
    ->Arg(1)
    ->Arg(256)
    ->Arg(4096)
    ->UseManualTime();

}  // namespace
}  // namespace moecl::bench
