#include <moecl/grouped_gemm.hpp>

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

/// The first product of a layer: tokens gathered by slot, routed at random. A few sets of weights take turns, so that
/// those of one call are not in a cache at the next.
void first_product(benchmark::State& state, const Model& model, DType dtype) {
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
  const test::DeviceTensor a(stream(), dtype, {tokens, model.k}), a_index(stream(), DType::i32, {slots}, index);
  const test::DeviceTensor row_ends(stream(), DType::i32, {model.experts}, ends),
      out(stream(), DType::f32, {slots, model.n});
  const test::DeviceTensor a_scale(stream(), DType::f32, {tokens}),
      weight_scale(stream(), DType::f32, {model.experts, model.n});
  std::vector<Buffer> weights;
  const std::uint64_t size = PackedWeights::size_bytes(code_type(dtype), model.experts, model.n, model.k);
  if (size > stream().device->caps.max_alloc_bytes) return state.SkipWithError("more than the device's largest buffer");
  for (std::uint64_t total = 0; total < (std::uint64_t{2} << 30); total += size)
    weights.emplace_back(*stream().context, size);
  // Any finite pattern will do, as long as no value is subnormal: 0.0059 in f32 and bf16.
  for (const Buffer& buffer : weights) enqueue_fill(stream(), buffer.view(), 0x3bc23bc2);
  enqueue_fill(stream(), a.view.buffer, 0x3bc23bc2);
  grouped_gemm::Args args;
  args.a = a, args.a_index = a_index, args.index_divisor = static_cast<std::int32_t>(model.top_k),
  args.row_ends = row_ends, args.out = out;
  if (dtype == DType::i8) args.a_scale = a_scale, args.weight_scale = weight_scale;
  std::size_t turn = 0;
  args.weights = {weights[0].view(), code_type(dtype), model.experts, model.n, model.k};
  state.SetLabel(grouped_gemm::select(args, {}, stream().device->caps));
  measure(state, grouped_gemm::cost(args, active), [&] {
    args.weights.buffer = weights[turn++ % weights.size()].view();
    grouped_gemm::enqueue(stream(), args);
  });
}

void tokens(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgName("T")->Arg(1)->Arg(16)->Arg(128)->Arg(512)->UseManualTime();
}
BENCHMARK_CAPTURE(first_product, qwen3_f32, qwen3_30b, DType::f32)->Name("grouped_gemm/qwen3_30b/f32")->Apply(tokens);
BENCHMARK_CAPTURE(first_product, qwen3_bf16, qwen3_30b, DType::bf16)
    ->Name("grouped_gemm/qwen3_30b/bf16")
    ->Apply(tokens);
BENCHMARK_CAPTURE(first_product, qwen3_i8, qwen3_30b, DType::i8)->Name("grouped_gemm/qwen3_30b/i8")->Apply(tokens);
BENCHMARK_CAPTURE(first_product, mixtral_f32, mixtral_slice, DType::f32)
    ->Name("grouped_gemm/mixtral_slice/f32")
    ->Apply(tokens);
BENCHMARK_CAPTURE(first_product, mixtral_bf16, mixtral_slice, DType::bf16)
    ->Name("grouped_gemm/mixtral_slice/bf16")
    ->Apply(tokens);
BENCHMARK_CAPTURE(first_product, mixtral_i8, mixtral_slice, DType::i8)
    ->Name("grouped_gemm/mixtral_slice/i8")
    ->Apply(tokens);

}  // namespace
}  // namespace moecl::bench
