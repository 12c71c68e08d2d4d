// The experts' first product with weights in each layout that a CPU reads, one after the other: rows of each of 32
// experts of Qwen3-30B-A3B, too many for a cache at one row. Weights and rows are random bits.
#include <moecl/grouped_gemm.hpp>

#include <random>

#include "bench/device_time.hpp"
#include "tests/cases/device_memory.hpp"

namespace moecl::bench {
namespace {

constexpr std::int64_t experts = 32, n = 1536, k = 2048;

/// Random codes, or numbers of 16 bits near 1.
Buffer random_values(std::int64_t bits, std::uint64_t bytes) {
  std::mt19937 engine(1);
  std::vector<std::uint32_t> words(bytes / 4);
  for (std::uint32_t& word : words)
    word = bits == 16 ? (static_cast<std::uint32_t>(engine()) & 0x807f807fU) | 0x3f003f00U
                      : static_cast<std::uint32_t>(engine());
  Buffer values(*stream().context, bytes);
  write_blocking(stream(), values.view(), words.data(), bytes);
  return values;
}

void layouts(benchmark::State& state, DType a, CodeType weights, std::int64_t group) {
  const auto layout = static_cast<PanelLayout>(state.range(0));
  const std::int64_t rows = state.range(1), all = rows * experts;
  state.SetLabel(name(layout));
  const auto bytes = [](std::int64_t count, DType dtype) {
    return static_cast<std::uint64_t>(count) * size_bytes(dtype);
  };
  const Buffer codes = random_values(bits(weights), PackedWeights::size_bytes(weights, experts, n, k)),
               values = random_values(static_cast<std::int64_t>(size_bytes(a)) * 8, bytes(all * k, a)),
               out(*stream().context, bytes(all * n, DType::f32));
  std::vector<std::int32_t> ends;
  for (std::int64_t expert = 1; expert <= experts; ++expert) ends.push_back(static_cast<std::int32_t>(expert * rows));
  const test::DeviceTensor row_ends(stream(), DType::i32, {experts}, std::vector<double>(ends.begin(), ends.end()));
  grouped_gemm::Args args;
  args.a = TensorView(values.view(), a, {all, k});
  args.weights = {codes.view(), weights, experts, n, k};
  args.weights.layout = layout;
  Buffer scale;
  if (group != 0) {
    scale = random_values(16, bytes(experts * n * (k / group), DType::bf16));
    args.weights.group = group;
    args.weights.scale = TensorView(scale.view(), DType::bf16, {experts, n / 64, k / group, 64});
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
BENCHMARK_CAPTURE(layouts, bf16, DType::bf16, CodeType::bf16, 0)->Name("panel_layouts/bf16/bf16")->Apply(both);

}  // namespace
}  // namespace moecl::bench
