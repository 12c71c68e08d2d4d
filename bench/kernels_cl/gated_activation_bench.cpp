#include <moecl/gated_activation.hpp>

#include "bench/device_time.hpp"
#include "tests/cases/device_memory.hpp"

namespace moecl::bench {
namespace {

/// Rows of a model with I = 768 (Qwen3-30B-A3B), f32 from the first product.
void activate(benchmark::State& state, ActivationFunction function, DType out_dtype) {
  const std::int64_t rows = state.range(0), width = 768;
  const test::DeviceTensor x(stream(), DType::f32, {rows, 2 * width},
                             test::normal(static_cast<std::size_t>(rows * 2 * width), 1));
  const test::DeviceTensor out(stream(), out_dtype, {rows, width}), scale(stream(), DType::f32, {rows});
  Activation activation;
  activation.function = function;
  const gated_activation::Args args{x, {}, 0, activation, out, out_dtype == DType::i8 ? scale.view : TensorView()};
  measure(state, gated_activation::cost(args), [&] { gated_activation::enqueue(stream(), args); });
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
