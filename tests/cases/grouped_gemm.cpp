#include "tests/cases/grouped_gemm.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include "tests/cases/self_test.hpp"

namespace moecl::test {
namespace {

std::vector<double> random_values(DType dtype, std::size_t count, std::uint64_t seed) {
  if (dtype != DType::i8) return rounded(dtype, normal(count, seed));
  std::mt19937_64 engine(seed);
  std::uniform_int_distribution<int> distribution(-128, 127);
  std::vector<double> values(count);
  for (double& value : values) value = distribution(engine);
  return values;
}

double unit_roundoff(DType dtype) { return dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-11 : 0x1p-24; }

}  // namespace

std::string GroupedGemmCase::describe() const {
  return fmt::format("{} x {} -> {}, rows {}, N {}, K {}{}{}{}", name(a), name(weights), name(out),
                     fmt::join(rows_of_expert, "+"), n, k,
                     rows_per_expert != 0 ? fmt::format(", batched by {}", rows_per_expert) : "",
                     divisor != 0 ? fmt::format(", gathered by {}", divisor) : "", bias ? ", bias" : "") +
         (layout == PanelLayout::n_major ? "" : fmt::format(", {}", name(layout)));
}

GroupedProduct make_product(const GroupedGemmCase& shape, std::uint64_t seed) {
  const std::int64_t valid = std::accumulate(shape.rows_of_expert.begin(), shape.rows_of_expert.end(), std::int64_t{0});
  GroupedProduct product;
  product.n = shape.n, product.k = shape.k;
  product.rows_of_expert = shape.rows_of_expert;
  product.rows_per_expert = shape.rows_per_expert;
  product.rows = shape.rows_per_expert != 0 ? shape.rows_per_expert * product.experts() : valid + shape.invalid_rows;
  const std::int64_t sources = shape.divisor == 0 ? product.rows : (product.rows + shape.divisor - 1) / shape.divisor;
  const auto size = [](std::int64_t count) { return static_cast<std::size_t>(count); };
  product.a = random_values(shape.a, size(sources * shape.k), seed);
  product.weights = random_values(shape.weights, size(product.experts() * shape.n * shape.k), seed + 1);
  if (shape.divisor != 0) {
    product.divisor = shape.divisor;
    product.index.resize(size(product.rows));
    std::iota(product.index.begin(), product.index.end(), 0.0);
    std::shuffle(product.index.begin(), product.index.end(), std::mt19937_64(seed + 2));
  } else {
    for (std::int64_t row = 0; row < product.rows; ++row) {
      const bool is_valid = shape.rows_per_expert == 0
                                ? row < valid
                                : row % shape.rows_per_expert < shape.rows_of_expert[size(row / shape.rows_per_expert)];
      if (!is_valid)
        std::fill_n(product.a.begin() + row * shape.k, shape.k,
                    shape.a == DType::i8 ? 127 : std::numeric_limits<double>::quiet_NaN());
    }
  }
  if (shape.a == DType::i8) {
    product.a_scale = rounded(DType::f32, normal(size(sources), seed + 3));
    product.weight_scale = normal(size(product.experts() * shape.n), seed + 4);
    for (double& scale : product.weight_scale) scale /= 1024;  // results fit in f16
    product.weight_scale = rounded(shape.vectors, product.weight_scale);
  }
  if (shape.bias) product.bias = rounded(shape.vectors, normal(size(product.experts() * shape.n), seed + 5));
  return product;
}

double grouped_gemm_error(const GroupedGemmCase& shape, const GroupedProduct& product, const std::vector<double>& got) {
  const GroupedResult expected = grouped_gemm_oracle(product, shape.f8_steps);
  if (got.size() != expected.values.size()) return std::numeric_limits<double>::infinity();
  const bool exact_sums = shape.a == DType::i8 && shape.weights == DType::i8;
  const double epilogue = (product.a_scale.empty() ? 0 : 1) + (product.weight_scale.empty() ? 0 : 1) + 1;
  const double roundings =
      shape.out == DType::i32 ? 0 : epilogue + (exact_sums ? 1 : static_cast<double>(shape.k + shape.extra_roundings));
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) != std::isnan(expected.values[i])) return std::numeric_limits<double>::infinity();
    if (std::isnan(got[i])) continue;
    const double arithmetic = roundings * 0x1p-24 * expected.magnitudes[i] +
                              (shape.f8_steps ? 33 * 0x1p-13 * expected.largest_of_steps[i] : 0);
    const double storage = unit_roundoff(shape.out) * (std::abs(expected.values[i]) + arithmetic) +
                           0x1p-25;  // f16 is subnormal below 2^-14
    const bool narrow = shape.out == DType::f16 || shape.out == DType::bf16;
    worst = std::max(worst, std::abs(got[i] - expected.values[i]) / (arithmetic + (narrow ? storage : 0x1p-149)));
  }
  return worst;
}

PackedOnDevice::PackedOnDevice(StreamView stream, DType dtype, std::int64_t experts, std::int64_t n, std::int64_t k,
                               const std::vector<double>& values, PanelLayout layout)
    : buffer(*stream.context, PackedWeights::size_bytes(code_type(dtype), experts, n, k)),
      weights{buffer.view(), code_type(dtype), experts, n, k} {
  weights.layout = layout;
  const DeviceTensor source(stream, dtype, {experts * n, k}, values);
  for (std::int64_t expert = 0; expert < experts; ++expert)
    pack_weights::enqueue(stream, {source.view.rows(expert * n, n), weights, expert, 0});
  stream.finish();
}

GroupedGemmOperands::GroupedGemmOperands(StreamView stream, const GroupedGemmCase& shape, const GroupedProduct& product,
                                         Guards guards)
    : CaseTensors(stream, guards),
      packed_(stream, shape.weights, product.k_ends.empty() ? product.experts() : 1, shape.n, shape.k, product.weights,
              shape.layout) {
  const std::int64_t sources = std::ssize(product.a) / shape.k, experts = product.experts();
  args.a = input(shape.a, {sources, shape.k}, product.a);
  args.a_index = optional_input(DType::i32, {product.rows}, product.index);
  args.index_divisor = static_cast<std::int32_t>(product.divisor);
  args.a_scale = optional_input(DType::f32, {sources}, product.a_scale);
  args.weights = packed_.weights;
  args.a_zero_point = static_cast<std::int32_t>(product.a_zero_point);
  args.weight_scale = optional_input(shape.vectors, {experts, shape.n}, product.weight_scale);
  args.sum_bias = optional_input(DType::i32, {experts, shape.n}, product.sum_bias);
  args.bias = optional_input(shape.vectors, {experts, shape.n}, product.bias);
  args.a_scale_bias = product.a_scale_bias;
  args.k_ends = optional_input(DType::i32, {experts}, product.k_ends);
  if (product.k_ends.empty()) args.row_ends = input(DType::i32, {experts}, product.row_ends());
  args.rows_per_expert = product.rows_per_expert;
  args.out = output(shape.out, {product.rows, shape.n});
}

std::vector<SelfTestResult> self_test_grouped_gemm(StreamView stream) {
  std::vector<SelfTestResult> results;
  for (const DType dtype : {DType::f32, DType::bf16, DType::i8}) {
    const GroupedGemmCase shape{{3, 0, 9}, 65, 33, dtype, dtype, DType::f32};
    const GroupedProduct product = make_product(shape, 1);
    std::string tested;
    for (const std::int64_t expected_rows : {1, 1000}) {
      const GroupedGemmOperands operands(stream, shape, product);
      const grouped_gemm::Plan plan = grouped_gemm::plan(operands.args, {"", {expected_rows, 1}}, *stream.device);
      if (plan.variant == std::exchange(tested, plan.variant)) continue;
      grouped_gemm::enqueue(stream, plan, operands.args);
      results.push_back({"grouped_gemm", plan.variant, shape.describe(),
                         grouped_gemm_error(shape, product, operands.values(operands.args.out)), 1});
    }
  }
  return results;
}

}  // namespace moecl::test
