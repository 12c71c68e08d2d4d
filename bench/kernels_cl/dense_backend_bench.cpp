// Our grouped GEMM and CLBlast side by side, on the products that both can compute.
// kernels_cl/tuning/dense_backend.json is filled from: moecl bench --filter dense_backend
#include "bench/dense_products.hpp"
#include "bench/device_time.hpp"

namespace moecl::bench {
namespace {

void product(benchmark::State& state, dense_backend::Backend backend) {
  const DenseProduct product({state.range(0), state.range(1), state.range(2), state.range(3)}, backend);
  measure(state, product.cost(), [&] { product.enqueue(); }, {Arithmetic::f32, true});
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
