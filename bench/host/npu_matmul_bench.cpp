#include "bench/host/npu_call.hpp"
#include "host/npu/describe_matmul.hpp"
#include "tests/cases/device_memory.hpp"

namespace moecl::bench {
namespace {

/// A slice of Qwen3-30B-A3B's experts (hidden 2048, moe_intermediate_size 768), with rows spread evenly. Only a slice,
/// because each call packs the weights of all experts that it gets.
constexpr std::int64_t experts = 16, hidden = 2048, gate_up = 2 * 768;

/// Operands filled with an arbitrary bit pattern that is finite and not subnormal, and a list of row counts.
struct Operands {
  test::DeviceTensor x, weight, scale, x_scale, counts;

  Operands(std::int64_t rows, DType dtype)
      : x(stream(), dtype, {rows, hidden}),
        weight(stream(), dtype, {experts, hidden, gate_up}),
        scale(stream(), DType::f32, {experts, gate_up}),
        x_scale(stream(), DType::f32, {rows}),
        counts(stream(), DType::i64, {experts},
               std::vector<double>(static_cast<std::size_t>(experts), static_cast<double>(rows) / experts)) {
    for (const test::DeviceTensor* tensor : {&x, &weight, &scale, &x_scale})
      enqueue_fill(stream(), tensor->view.buffer, 0x3bc23bc2);
  }
};

void quant_matmul(benchmark::State& state) {
  const Operands of(state.range(0), DType::i8);
  npu::QuantMatmulArgs args;
  args.x1 = of.x, args.pertoken_scale = of.x_scale, args.output_dtype = DType::bf16;
  args.x2 = TensorView(of.weight.buffer.view(), DType::i8, {hidden, gate_up});
  args.scale = TensorView(of.scale.buffer.view(), DType::f32, {gate_up});
  measure_operator(state, args);
}

void grouped_matmul(benchmark::State& state, DType dtype) {
  const Operands of(state.range(0), dtype);
  npu::GroupedMatmulArgs args;
  args.x = {of.x}, args.weight = {of.weight}, args.group_list = of.counts;
  args.group_type = 0, args.group_list_type = 1, args.split_item = 3;
  if (dtype == DType::i8) args.scale = {of.scale}, args.per_token_scale = {of.x_scale}, args.output_dtype = DType::bf16;
  measure_operator(state, args);
}

void swiglu_quant_v2(benchmark::State& state) {
  const Operands of(state.range(0), DType::i8);
  npu::GroupedMatmulSwigluQuantV2Args args;
  args.x = of.x, args.weight = {of.weight}, args.weight_scale = {of.scale}, args.x_scale = of.x_scale;
  args.group_list = of.counts, args.group_list_type = 1;
  measure_operator(state, args);
}

/// The operators that take a cumulative group list.
template <class Args>
void swiglu_quant(benchmark::State& state) {
  const std::int64_t rows = state.range(0);
  const Operands of(rows, DType::i8);
  std::vector<double> ends;
  for (std::int64_t e = 1; e <= experts; ++e) ends.push_back(static_cast<double>(e * rows / experts));
  const test::DeviceTensor group_list(stream(), DType::i64, {experts}, ends);
  Args args;
  args.x = of.x, args.weight = of.weight, args.weight_scale = of.scale, args.x_scale = of.x_scale;
  args.group_list = group_list;
  measure_operator(state, args);
}

void finalize_routing(benchmark::State& state) {
  const std::int64_t rows = state.range(0);
  const Operands of(rows, DType::i8);
  std::vector<double> destinations;
  for (std::int64_t row = 0; row < rows; ++row) destinations.push_back(static_cast<double>(row * 7 % (rows / 8)));
  const test::DeviceTensor row_index(stream(), DType::i64, {rows}, destinations);
  npu::GroupedMatmulFinalizeRoutingArgs args;
  args.x = of.x, args.weight = of.weight, args.scale = of.scale, args.pertoken_scale = of.x_scale;
  args.group_list = of.counts, args.row_index = row_index, args.output_bs = rows / 8;
  measure_operator(state, args);
}

void rows(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgName("rows")->Arg(64)->Arg(1024)->UseManualTime();
}
BENCHMARK(quant_matmul)->Name("npu_quant_matmul/i8/qwen3_30b")->Apply(rows);
BENCHMARK_CAPTURE(grouped_matmul, bf16, DType::bf16)->Name("npu_grouped_matmul/bf16/qwen3_30b/E:16")->Apply(rows);
BENCHMARK_CAPTURE(grouped_matmul, i8, DType::i8)->Name("npu_grouped_matmul/i8/qwen3_30b/E:16")->Apply(rows);
BENCHMARK(swiglu_quant<npu::GroupedMatmulSwigluQuantArgs>)
    ->Name("npu_grouped_matmul_swiglu_quant/i8/qwen3_30b/E:16")
    ->Apply(rows);
BENCHMARK(swiglu_quant<npu::CAscendGroupedMatmulSwigluQuantArgs>)
    ->Name("_C_ascend.grouped_matmul_swiglu_quant/i8/qwen3_30b/E:16")
    ->Apply(rows);
BENCHMARK(swiglu_quant_v2)->Name("npu_grouped_matmul_swiglu_quant_v2/i8/qwen3_30b/E:16")->Apply(rows);
BENCHMARK(finalize_routing)->Name("npu_grouped_matmul_finalize_routing/i8/qwen3_30b/E:16")->Apply(rows);

}  // namespace
}  // namespace moecl::bench
