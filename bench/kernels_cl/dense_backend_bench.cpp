// Our grouped GEMM and CLBlast side by side on the products that either can compute; what
// kernels_cl/tuning/dense_backend.json is filled from: moecl_bench --benchmark_filter=dense_backend
#include <moecl/clblast_gemm.hpp>
#include <moecl/dense_backend.hpp>
#include <moecl/grouped_gemm.hpp>

#include "bench/device_time.hpp"
#include "tests/cases/grouped_gemm.hpp"

namespace moecl::bench {
namespace {

/// b products [m, n] = [m, k] x [n, k]; dense is b == 1.
void product(benchmark::State& state, dense_backend::Backend backend) {
  const std::int64_t b = state.range(0), m = state.range(1), n = state.range(2), k = state.range(3);
  const auto random = [](std::int64_t count, std::uint64_t seed) {
    return test::normal(static_cast<std::size_t>(count), seed);
  };
  const test::DeviceTensor a(stream(), DType::f32, {b * m, k}, random(b * m * k, 1));
  const test::DeviceTensor out(stream(), DType::f32, {b * m, n});
  const std::vector<double> weights = random(b * n * k, 2);
  if (backend == dense_backend::Backend::clblast) {
    const test::DeviceTensor w(stream(), DType::f32, {b * n, k}, weights);
    const auto batch = [&](const TensorView& view) {
      return b == 1 ? view : TensorView(view.buffer, view.dtype, {b, view.shape[0] / b, view.shape[1]});
    };
    const clblast_gemm::Args args{batch(a), batch(w), batch(out)};
    return measure(state, clblast_gemm::cost(args), [&] { clblast_gemm::enqueue(stream(), args); });
  }
  const test::PackedOnDevice packed(stream(), DType::f32, b, n, k, weights);
  std::vector<double> ends;
  for (std::int64_t expert = 1; expert <= b; ++expert) ends.push_back(static_cast<double>(expert * m));
  const test::DeviceTensor row_ends(stream(), DType::i32, {b}, ends);
  grouped_gemm::Args args;
  args.a = a, args.weights = packed.weights, args.out = out;
  if (b > 1) args.row_ends = row_ends, args.rows_per_expert = m;
  measure(state, grouped_gemm::cost(args), [&] { grouped_gemm::enqueue(stream(), args); });
}

/// Router projections (Qwen3-30B-A3B, DeepSeek-V3), shared experts (Qwen2-57B gate and up, DeepSeek-V2-Lite down), and
/// eight experts in the batched layout.
void shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"B", "M", "N", "K"})->UseManualTime();
  for (const std::int64_t m : {1, 16, 128, 512}) {
    benchmark->Args({1, m, 128, 2048})->Args({1, m, 256, 7168})->Args({1, m, 5120, 3584})->Args({1, m, 2048, 2816});
    if (m < 512) benchmark->Args({8, m, 1536, 2048});
  }
}
BENCHMARK_CAPTURE(product, grouped_gemm, dense_backend::Backend::grouped_gemm)
    ->Name("dense_backend/grouped_gemm")
    ->Apply(shapes);
BENCHMARK_CAPTURE(product, clblast, dense_backend::Backend::clblast)->Name("dense_backend/clblast")->Apply(shapes);

}  // namespace
}  // namespace moecl::bench
