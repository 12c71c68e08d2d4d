#include "bench/device_time.hpp"
#include "tests/cases/gated_activation.hpp"

namespace moecl::bench {
namespace {

/// Rows of a model with I = 768 (Qwen3-30B-A3B), f32 from the first product.
void activate(benchmark::State& state, ActivationFunction function, DType out_dtype) {
  const std::int64_t width = 768;
  const test::OperandsOf<test::GatedActivationCase> rows(
      stream(), {width,
                 test::normal(static_cast<std::size_t>(state.range(0) * 2 * width), 1),
                 {function},
                 DType::f32,
                 out_dtype});
  measure(state, gated_activation::cost(rows.args), [&] { gated_activation::enqueue(stream(), rows.args); });
}
void silu(benchmark::State& state) { activate(state, ActivationFunction::silu, DType::f32); }
void silu_int8(benchmark::State& state) { activate(state, ActivationFunction::silu, DType::i8); }
void gelu(benchmark::State& state) { activate(state, ActivationFunction::gelu, DType::f32); }
BENCHMARK(silu)
    ->Name("gated_activation/silu/f32/I:768")
    ->ArgName("R")
    ->Arg(8)
    ->Arg(128)
    ->Arg(4096)
    ->Arg(16384)
    ->UseManualTime();
BENCHMARK(silu_int8)
    ->Name("gated_activation/silu/f32_to_i8/I:768")
    ->ArgName("R")
    ->Arg(8)
    ->Arg(128)
    ->Arg(4096)
    ->Arg(16384)
    ->UseManualTime();
BENCHMARK(gelu)->Name("gated_activation/gelu/f32/I:768")->ArgName("R")->Arg(4096)->UseManualTime();

}  // namespace
}  // namespace moecl::bench
