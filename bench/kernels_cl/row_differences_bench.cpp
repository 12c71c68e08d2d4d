#include "bench/device_time.hpp"
#include "tests/cases/row_differences.hpp"

namespace moecl::bench {
namespace {

/// An expert's down matrix of Qwen3-30B-A3B in bf16, and the same matrix as numbers after quantization.
void differences(benchmark::State& state) {
  const std::int64_t width = 768;
  const auto size = static_cast<std::size_t>(state.range(0) * width);
  const test::OperandsOf<test::RowDifferencesCase> rows(
      stream(), {width, test::normal(size, 1), test::normal(size, 2), DType::bf16, DType::f32});
  measure(state, row_differences::cost(rows.args), [&] { row_differences::enqueue(stream(), rows.args); });
}
BENCHMARK(differences)->Name("row_differences/bf16")->ArgName("N")->Arg(128)->Arg(2048)->UseManualTime();

}  // namespace
}  // namespace moecl::bench
