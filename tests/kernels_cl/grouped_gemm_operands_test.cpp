// Grouped GEMM with what the operators of an NPU need and a layer does not: other scales, biases and outputs, and
// windows of k.
#include "tests/kernels_cl/grouped_gemm_operands.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace moecl::test {
namespace {

class GroupedGemmOperandsTest : public OnEveryDevice {
 protected:
  void check(const GroupedGemmCase& shape, const GroupedProduct& product) const {
    check_product(device(), shape, product);
  }
};
MOECL_ON_EVERY_DEVICE(GroupedGemmOperandsTest);

std::vector<double> whole_numbers(std::size_t count, double range, std::uint64_t seed) {
  std::vector<double> values = normal(count, seed);
  for (double& value : values) value = std::round(value * range);
  return values;
}

constexpr std::size_t channels = 3 * 67;
const GroupedGemmCase i8{{3, 0, 8}, 67, 35, DType::i8, DType::i8, DType::f32, 0, 2};

TEST_P(GroupedGemmOperandsTest, GivesTheBareSumsOfInt8) {
  GroupedGemmCase shape = i8;
  shape.out = DType::i32, shape.k = 1400;
  GroupedProduct product = make_product(shape, 3);
  product.a_scale.clear(), product.weight_scale.clear();
  // f32 cannot hold sums of this size, so an output that passed through f32 would show.
  std::fill_n(product.a.begin(), shape.k, -128);
  std::fill(product.weights.begin(), product.weights.end(), -128);
  for (std::size_t i = 0; i < product.weights.size(); i += 3) product.weights[i] = 127;
  check(shape, product);
  product.sum_bias = whole_numbers(channels, 1e6, 4);
  check(shape, product);
}

TEST_P(GroupedGemmOperandsTest, AddsAnIntegerBiasBeforeTheScales) {
  for (const DType vectors : {DType::f32, DType::bf16}) {
    GroupedGemmCase shape = i8;
    shape.vectors = vectors;
    GroupedProduct product = make_product(shape, 5);
    product.sum_bias = whole_numbers(channels, 1e5, 6);
    check(shape, product);
    product.bias = rounded(vectors, normal(channels, 16));
    check(shape, product);
  }
}

TEST_P(GroupedGemmOperandsTest, TakesEachScaleAlone) {
  GroupedProduct product = make_product(i8, 7);
  product.a_scale.clear();
  check(i8, product);
  product.weight_scale.clear();
  check(i8, product);
  product.a_scale = rounded(DType::f32, normal(13, 8));
  check(i8, product);
  GroupedGemmCase shape{{3, 0, 8}, 67, 35, DType::f32, DType::f32, DType::f32, 0, 2, 0, true, DType::f16};
  product = make_product(shape, 9);
  product.a_scale = rounded(DType::f32, normal(13, 10));
  check(shape, product);
  product.weight_scale = rounded(DType::f16, normal(channels, 11));
  check(shape, product);
}

TEST_P(GroupedGemmOperandsTest, TakesOneScaleAndBiasForAnExpertAndPackedScales) {
  GroupedGemmCase shape = i8;
  shape.bias = true;
  GroupedProduct product = make_product(shape, 12), single = product;
  std::vector<double> apart(2 * channels, std::nan("")), scale, bias;
  for (std::size_t i = 0; i < channels; ++i) {
    apart[2 * i] = product.weight_scale[i];
    single.weight_scale[i] = product.weight_scale[i / 67 * 67], single.bias[i] = product.bias[i / 67 * 67];
    if (i % 67 == 0) scale.push_back(product.weight_scale[i]), bias.push_back(product.bias[i]);
  }
  const GuardedTensor scales = upload(device(), DType::f32, {3, 1}, scale),
                      biases = upload(device(), DType::f32, {3, 1}, bias);
  const DeviceTensor halves(device().stream, DType::f32, {3, 134}, apart);
  const TensorView packed(halves.buffer.view(), DType::i64, {3, 67});
  for (const grouped_gemm::Variant& variant : grouped_gemm::variants()) {
    for (const bool one : {true, false}) {
      Operands operands(device(), shape, one ? single : product);
      operands.args.weight_scale = one ? scales.view() : packed;
      if (one) operands.args.bias = biases;
      const auto args = operands.fitting(variant.name);
      if (!args) continue;
      grouped_gemm::enqueue(device().stream, *args, {variant.name});
      EXPECT_LE(grouped_gemm_error(shape, one ? single : product, operands.out()), 1) << variant.name << one;
    }
  }
}

TEST_P(GroupedGemmOperandsTest, RoundsToInt8) {
  // Powers of two keep everything exact. Ties and values out of range are frequent.
  GroupedGemmCase shape = i8;
  shape.out = DType::i8, shape.invalid_rows = 0;
  GroupedProduct product = make_product(shape, 17);
  product.a_scale.clear();
  product.weight_scale.assign(channels, 0x1p-9);
  product.bias = whole_numbers(channels, 20, 18);
  for (std::size_t i = 0; i < product.a.size(); ++i) product.a[i] = i % 3 == 0 ? 64 : -32;
  std::vector<double> expected = grouped_gemm_oracle(product).values;
  for (double& value : expected) value = std::clamp(std::nearbyint(value), -128.0, 127.0);
  for (const grouped_gemm::Variant& variant : grouped_gemm::variants()) {
    Operands operands(device(), shape, product);
    const auto args = operands.fitting(variant.name);
    if (!args) continue;
    grouped_gemm::enqueue(device().stream, *args, {variant.name});
    EXPECT_EQ(operands.out(), expected) << variant.name;
  }
}

TEST_P(GroupedGemmOperandsTest, CountsInt8FromAZeroPointAndScalesTheBias) {
  for (const DType weights : {DType::i8, DType::f32}) {
    GroupedGemmCase shape = i8;
    shape.weights = weights, shape.bias = true, shape.k = 1100;
    GroupedProduct product = make_product(shape, 13);
    product.a_zero_point = weights == DType::i8 ? 127 : 8;
    product.a_scale_bias = true;
    check(shape, product);
  }
}

TEST_P(GroupedGemmOperandsTest, MultipliesInt8WithFloatWeights) {
  GroupedGemmCase shape = i8;
  shape.weights = DType::f32;
  check(shape, make_product(shape, 14));
}

TEST_P(GroupedGemmOperandsTest, TakesWindowsOfK) {
  for (const DType dtype : {DType::f32, DType::i8}) {
    for (const std::int64_t rows : {1, 7, 70}) {
      // Empty windows come first, in the middle and last. The last values of k belong to no window.
      GroupedGemmCase shape{{rows, rows, rows, rows, rows}, 67, 70, dtype, dtype, DType::f32, 0, 0, 0, true};
      GroupedProduct product = make_product(shape, 15);
      product.k_ends = {0, 33, 33, 67, 67};
      product.a.resize(static_cast<std::size_t>(rows * 70)), product.weights.resize(67 * 70);
      if (!product.a_scale.empty()) product.a_scale.resize(static_cast<std::size_t>(rows));
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t i = 67; i < 70; ++i)
          product.a[static_cast<std::size_t>(row * 70 + i)] =
              dtype == DType::i8 ? 127 : std::numeric_limits<double>::quiet_NaN();
      check(shape, product);
    }
  }
}

}  // namespace
}  // namespace moecl::test
