// An expert's first matrix of Qwen3-30B-A3B, as a model is loaded: plain numbers, and GPTQ's codes with their scales.
#include "bench/device_time.hpp"
#include "tests/cases/pack_weights.hpp"
#include "tests/cases/quantized_matrices.hpp"

namespace moecl::bench {
namespace {

constexpr std::int64_t matrix_rows = 1536, matrix_columns = 2048;

void pack_plain(benchmark::State& state, DType dtype) {
  const test::OperandsOf<test::PackWeightsCase> matrix(
      stream(), {matrix_rows, matrix_columns, dtype, dtype,
                 test::normal(static_cast<std::size_t>(matrix_rows * matrix_columns), 1)});
  measure(state, pack_weights::cost(matrix.args), [&] { pack_weights::enqueue(stream(), matrix.args); });
}

void pack_gptq(benchmark::State& state, PanelLayout layout) {
  test::QuantizedCase kind{CodeType::u4, DType::f16, 128, 0, true, 1, test::CodePlacing::words_k, 1};
  kind.layout = layout;
  const test::QuantizedOnDevice packed(stream(), kind, 1, matrix_rows, matrix_columns, 1);
  const test::QuantizedMatrix matrix(kind, matrix_rows, matrix_columns, 1);
  const test::StoredMatrix stored(stream(), kind, matrix);
  const pack_codes::Args args = stored.into(packed.weights, 0);
  if (const std::string reason = pack_codes::reject(args, *stream().device); !reason.empty())
    return state.SkipWithError(reason.c_str());
  measure(state, pack_codes::cost(args), [&] { pack_codes::enqueue(stream(), args); });
}

BENCHMARK_CAPTURE(pack_plain, bf16, DType::bf16)->Name("pack_weights/bf16/N:1536/K:2048")->UseManualTime();
BENCHMARK_CAPTURE(pack_plain, f32, DType::f32)->Name("pack_weights/f32/N:1536/K:2048")->UseManualTime();
BENCHMARK_CAPTURE(pack_gptq, n_major, PanelLayout::n_major)
    ->Name("pack_codes/gptq/n_major/N:1536/K:2048")
    ->UseManualTime();
BENCHMARK_CAPTURE(pack_gptq, k_words, PanelLayout::k_words)
    ->Name("pack_codes/gptq/k_words/N:1536/K:2048")
    ->UseManualTime();

}  // namespace
}  // namespace moecl::bench
