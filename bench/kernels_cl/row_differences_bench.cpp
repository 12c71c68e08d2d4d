#include <moecl/row_differences.hpp>

#include "bench/device_time.hpp"
#include "tests/cases/device_memory.hpp"

namespace moecl::bench {
namespace {

/// An expert's down matrix of Qwen3-30B-A3B in bf16, and its numbers once quantized.
void differences(benchmark::State& state) {
  const std::int64_t rows = state.range(0), width = 768;
  const auto size = static_cast<std::size_t>(rows * width);
  const test::DeviceTensor x(stream(), DType::bf16, {rows, width}, test::normal(size, 1)),
      y(stream(), DType::f32, {rows, width}, test::normal(size, 2)), out(stream(), DType::f32, {rows, 4});
  const row_differences::Args args{x, y, out};
  measure(state, row_differences::cost(args), [&] { row_differences::enqueue(stream(), args); });
}
BENCHMARK(differences)->Name("row_differences/bf16")->ArgName("N")->Arg(128)->Arg(2048)->UseManualTime();

}  // namespace
}  // namespace moecl::bench
