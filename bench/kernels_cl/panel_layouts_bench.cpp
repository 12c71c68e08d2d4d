// The experts' first product, with weights in each layout that a CPU reads, in turn. The weights of 32 experts of
// Qwen3-30B-A3B exceed a cache even with one row per expert. Weights are random bits, rows are normal numbers.
#include <moecl/grouped_gemm.hpp>

#include <algorithm>
#include <random>

#include "bench/device_time.hpp"
#include "tests/cases/device_memory.hpp"

namespace moecl::bench {
namespace {

constexpr std::int64_t experts = 32, n = 1536, k = 2048;

/// Random codes (of 8 bits: without fp8's NaN), or 16-bit numbers near 1.
Buffer random_values(std::int64_t bits, std::uint64_t bytes) {
  std::mt19937 engine(1);
  std::vector<std::uint32_t> words(bytes / 4);
  const std::uint32_t varied = bits == 16  ? 0x807f807fU
                               : bits == 8 ? 0xf7f7f7f7U
                                           : 0xffffffffU,
                      fixed = bits == 16 ? 0x3f003f00U : 0;
  for (std::uint32_t& word : words) word = (static_cast<std::uint32_t>(engine()) & varied) | fixed;
  Buffer values(*stream().context, bytes);
  write_blocking(stream(), values.view(), words.data(), bytes);
  return values;
}

/// @param scales  dtype of the group scales, if there are any
void layouts(benchmark::State& state, DType a, CodeType weights, std::int64_t group, DType scales = DType::bf16) {
  const auto layout = static_cast<PanelLayout>(state.range(0));
  const std::int64_t rows = state.range(1), all = rows * experts;
  state.SetLabel(name(layout));
  const auto bytes = [](std::int64_t count, DType dtype) {
    return static_cast<std::uint64_t>(count) * size_bytes(dtype);
  };
  const Buffer codes = random_values(bits(weights), PackedWeights::size_bytes(weights, experts, n, k)),
               out(*stream().context, bytes(all * n, DType::f32));
  std::vector<double> values = test::normal(static_cast<std::size_t>(all * k), 1);
  if (a == DType::i8)
    for (double& value : values) value = std::clamp(value * 40, -127.0, 127.0);
  const test::DeviceTensor rows_of_all(stream(), a, {all, k}, values);
  std::vector<std::int32_t> ends;
  for (std::int64_t expert = 1; expert <= experts; ++expert) ends.push_back(static_cast<std::int32_t>(expert * rows));
  const test::DeviceTensor row_ends(stream(), DType::i32, {experts}, std::vector<double>(ends.begin(), ends.end()));
  grouped_gemm::Args args;
  args.a = rows_of_all;
  args.weights = {codes.view(), weights, experts, n, k};
  args.weights.layout = layout;
  Buffer scale;
  if (group != 0) {
    scale = random_values(static_cast<std::int64_t>(size_bytes(scales)) * 8, bytes(experts * n * (k / group), scales));
    args.weights.group = group;
    args.weights.scale = TensorView(scale.view(), scales, {experts, n / 64, k / group, 64});
  }
  args.row_ends = row_ends.view;
  args.out = TensorView(out.view(), DType::f32, {all, n});
  if (const std::string reason = grouped_gemm::reject(args, {}, *stream().device); !reason.empty())
    return state.SkipWithError(reason.c_str());
  const grouped_gemm::Plan plan = grouped_gemm::plan(args, {}, *stream().device);
  measure(state, grouped_gemm::cost(args), [&] { grouped_gemm::enqueue(stream(), plan, args); },
          {Arithmetic::int8, true});
}
void both(benchmark::internal::Benchmark* of) {
  of->ArgNames({"layout", "rows"})->UseManualTime();
  for (const std::int64_t rows : {1, 4, 32, 96})
    for (const PanelLayout layout : {PanelLayout::n_major, PanelLayout::k_words})
      of->Args({static_cast<std::int64_t>(layout), rows});
}
BENCHMARK_CAPTURE(layouts, i8_i8, DType::i8, CodeType::i8, 0)->Name("panel_layouts/i8/i8")->Apply(both);
BENCHMARK_CAPTURE(layouts, i8_i4, DType::i8, CodeType::i4, 0)->Name("panel_layouts/i8/i4")->Apply(both);
BENCHMARK_CAPTURE(layouts, i8_i4_128, DType::i8, CodeType::i4, 128)->Name("panel_layouts/i8/i4/group:128")->Apply(both);
BENCHMARK_CAPTURE(layouts, bf16_i4_128, DType::bf16, CodeType::i4, 128)
    ->Name("panel_layouts/bf16/i4/group:128")
    ->Apply(both);
BENCHMARK_CAPTURE(layouts, f16_i4_128, DType::f16, CodeType::i4, 128)
    ->Name("panel_layouts/f16/i4/group:128")
    ->Apply(both);
BENCHMARK_CAPTURE(layouts, bf16_mxfp4, DType::bf16, CodeType::f4_e2m1, 32, DType::u8)
    ->Name("panel_layouts/bf16/mxfp4")
    ->Apply(both);
BENCHMARK_CAPTURE(layouts, bf16_nvfp4, DType::bf16, CodeType::f4_e2m1, 16, DType::f8_e4m3)
    ->Name("panel_layouts/bf16/nvfp4")
    ->Apply(both);
BENCHMARK_CAPTURE(layouts, bf16_fp8, DType::bf16, CodeType::f8_e4m3, 0)->Name("panel_layouts/bf16/fp8")->Apply(both);
BENCHMARK_CAPTURE(layouts, bf16_i8, DType::bf16, CodeType::i8, 0)->Name("panel_layouts/bf16/i8")->Apply(both);
BENCHMARK_CAPTURE(layouts, bf16, DType::bf16, CodeType::bf16, 0)->Name("panel_layouts/bf16/bf16")->Apply(both);

}  // namespace
}  // namespace moecl::bench
