#include <moecl/grouped_gemm.hpp>

#include <optional>
#include <random>
#include <set>

#include "bench/device_time.hpp"
#include "tests/cases/grouped_gemm.hpp"

namespace moecl::bench {
namespace {

struct Model {
  std::int64_t experts, top_k, n, k;
};
constexpr Model qwen3_30b{128, 8, 1536, 2048};    // gate and up of Qwen3-30B-A3B
constexpr Model mixtral_slice{8, 2, 3584, 4096};  // a quarter of the gate of Mixtral-8x7B

struct Format {
  DType a;
  CodeType weights;
  std::optional<DType> scale;  ///< of groups of K
  std::int64_t group = 0;
};
constexpr Format plain(DType dtype) {
  return {dtype,
          dtype == DType::f32    ? CodeType::f32
          : dtype == DType::bf16 ? CodeType::bf16
                                 : CodeType::i8,
          std::nullopt};
}

/// The first product of a layer: tokens gathered by slot, routed at random. A few sets of weights take turns, so that
/// those of one call are not in a cache at the next.
void first_product(benchmark::State& state, const Model& model, const Format& format) {
  const std::int64_t tokens = state.range(0), slots = tokens * model.top_k;
  std::mt19937_64 engine(1);
  std::vector<std::vector<double>> slots_of(static_cast<std::size_t>(model.experts));
  for (std::int64_t token = 0; token < tokens; ++token) {
    std::set<std::size_t> chosen;
    while (static_cast<std::int64_t>(chosen.size()) < model.top_k) chosen.insert(engine() % slots_of.size());
    double slot = static_cast<double>(token * model.top_k);
    for (const std::size_t expert : chosen) slots_of[expert].push_back(slot++);
  }
  std::vector<double> index, ends;
  std::int64_t active = 0;
  for (const std::vector<double>& list : slots_of) {
    index.insert(index.end(), list.begin(), list.end());
    ends.push_back(static_cast<double>(index.size()));
    active += list.empty() ? 0 : 1;
  }
  const test::DeviceTensor a(stream(), format.a, {tokens, model.k}), a_index(stream(), DType::i32, {slots}, index);
  const test::DeviceTensor row_ends(stream(), DType::i32, {model.experts}, ends),
      out(stream(), DType::f32, {slots, model.n});
  const test::DeviceTensor a_scale(stream(), DType::f32, {tokens}),
      weight_scale(stream(), DType::f32, {model.experts, model.n});
  std::vector<Buffer> weights;
  const std::uint64_t size = PackedWeights::size_bytes(format.weights, model.experts, model.n, model.k);
  if (size > stream().device->caps.max_alloc_bytes) return state.SkipWithError("more than the device's largest buffer");
  for (std::uint64_t total = 0; total < (std::uint64_t{2} << 30); total += size)
    weights.emplace_back(*stream().context, size);
  // Any finite pattern will do, as long as no value is subnormal: 0.0059 in f32 and bf16.
  for (const Buffer& buffer : weights) enqueue_fill(stream(), buffer.view(), 0x3bc23bc2);
  enqueue_fill(stream(), a.view.buffer, 0x3bc23bc2);
  grouped_gemm::Args args;
  args.a = a, args.a_index = a_index, args.index_divisor = static_cast<std::int32_t>(model.top_k),
  args.row_ends = row_ends, args.out = out;
  if (format.a == DType::i8) args.a_scale = a_scale, args.weight_scale = weight_scale;
  std::size_t turn = 0;
  args.weights = {weights[0].view(), format.weights, model.experts, model.n, model.k};
  Buffer scales;
  if (format.scale) {
    const std::int64_t panels = PackedWeights::panels(model.n), groups = model.k / format.group;
    scales = Buffer(*stream().context,
                    static_cast<std::uint64_t>(model.experts * panels * groups * 64) * size_bytes(*format.scale));
    enqueue_fill(stream(), scales.view(), *format.scale == DType::u8 ? 0x7f7f7f7f : 0x3bc23bc2);
    args.weights.group = format.group;
    args.weights.scale = TensorView(scales.view(), *format.scale, {model.experts, panels, groups, 64});
  }
  state.SetLabel(grouped_gemm::select(args, {}, stream().device->caps));
  measure(state, grouped_gemm::cost(args, active), [&] {
    args.weights.buffer = weights[turn++ % weights.size()].view();
    grouped_gemm::enqueue(stream(), args);
  });
}

void tokens(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgName("T")->Arg(1)->Arg(16)->Arg(128)->Arg(512)->UseManualTime();
}
#define FIRST_PRODUCT(model, label, ...)                                \
  BENCHMARK_CAPTURE(first_product, model##_##label, model, __VA_ARGS__) \
      ->Name("grouped_gemm/" #model "/" #label)                         \
      ->Apply(tokens)
FIRST_PRODUCT(qwen3_30b, f32, plain(DType::f32));
FIRST_PRODUCT(qwen3_30b, bf16, plain(DType::bf16));
FIRST_PRODUCT(qwen3_30b, i8, plain(DType::i8));
FIRST_PRODUCT(qwen3_30b, int8_w8a16, Format{DType::bf16, CodeType::i8, std::nullopt});
FIRST_PRODUCT(qwen3_30b, int4_w4a16_g128, Format{DType::bf16, CodeType::i4, DType::f16, 128});
FIRST_PRODUCT(qwen3_30b, int4_w4a8_g128, Format{DType::i8, CodeType::i4, DType::f16, 128});
FIRST_PRODUCT(qwen3_30b, fp8_w8a16, Format{DType::bf16, CodeType::f8_e4m3, std::nullopt});
FIRST_PRODUCT(qwen3_30b, fp8_w8a8, Format{DType::f8_e4m3, CodeType::f8_e4m3, std::nullopt});
FIRST_PRODUCT(qwen3_30b, mxfp8_w8a16, Format{DType::bf16, CodeType::f8_e4m3, DType::u8, 32});
FIRST_PRODUCT(qwen3_30b, mxfp6_w6a16, Format{DType::bf16, CodeType::f6_e2m3, DType::u8, 32});
FIRST_PRODUCT(qwen3_30b, mxfp4_w4a16, Format{DType::bf16, CodeType::f4_e2m1, DType::u8, 32});
FIRST_PRODUCT(qwen3_30b, nvfp4_w4a16, Format{DType::bf16, CodeType::f4_e2m1, DType::f8_e4m3, 16});
FIRST_PRODUCT(mixtral_slice, f32, plain(DType::f32));
FIRST_PRODUCT(mixtral_slice, bf16, plain(DType::bf16));
FIRST_PRODUCT(mixtral_slice, i8, plain(DType::i8));
FIRST_PRODUCT(mixtral_slice, int4_w4a16_g128, Format{DType::bf16, CodeType::i4, DType::f16, 128});
FIRST_PRODUCT(mixtral_slice, mxfp4_w4a16, Format{DType::bf16, CodeType::f4_e2m1, DType::u8, 32});

}  // namespace
}  // namespace moecl::bench
