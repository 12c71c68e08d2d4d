// Grouped GEMM of f16 and bf16 rows, cut into digits of 8 bits, with codes of 4 bits (AVX2, AVX-VNNI). The reference is
// double precision. Hard cases: numbers far from 1, and large numbers beside small ones.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "tests/cases/quantized_matrices.hpp"
#include "tests/kernels_cl/grouped_gemm_operands.hpp"

namespace moecl::test {
namespace {

/// Parameters: a device, and whether the variant is the one for AVX-VNNI.
class Avx2DigitsGemmTest : public testing::TestWithParam<std::tuple<std::size_t, bool>> {
 protected:
  void SetUp() override {
    const DeviceCaps& caps = device().caps();
    if (caps.has_avx512 || !(is_vnni() ? caps.has_avx_vnni : caps.has_avx2)) GTEST_SKIP() << "not offered here";
  }
  TestDevice& device() const { return *devices()[std::get<0>(GetParam())]; }
  bool is_vnni() const { return std::get<1>(GetParam()); }
  QuantizedOnDevice words(QuantizedCase kind, std::int64_t n, std::int64_t k, std::int64_t experts = 1) const {
    kind.layout = PanelLayout::k_words;
    return {device().stream, kind, experts, n, k, 5};
  }
  std::vector<double> multiplied(const GroupedGemmCase& shape, const GroupedProduct& product,
                                 const PackedWeights& weights) const {
    Operands operands(device(), shape, product);
    operands.args.weights = weights;
    grouped_gemm::enqueue(device().stream, operands.args, {is_vnni() ? "avx_vnni_digits" : "avx2_digits"});
    return operands.out();
  }
  void check(const QuantizedCase& kind, DType a, const std::vector<std::int64_t>& rows, std::int64_t n, std::int64_t k,
             DType out = DType::f32) const {
    GroupedGemmCase shape{rows, n, k, a, DType::f32, out};
    SCOPED_TRACE(testing::Message() << shape.describe() << ", " << kind.describe());
    shape.extra_roundings = 3;
    GroupedProduct product = make_product(shape, 3);
    const QuantizedOnDevice weights = words(kind, n, k, product.experts());
    product.weights = weights.values;
    EXPECT_LE(grouped_gemm_error(shape, product, multiplied(shape, product, weights.weights)), 1);
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, Avx2DigitsGemmTest,
                         testing::Combine(testing::Range(std::size_t{0}, devices().size()), testing::Bool()),
                         [](const auto& param) {
                           return devices()[std::get<0>(param.param)]->label + (std::get<1>(param.param) ? "Vnni" : "");
                         });

// Few rows stream the panel; more rows reuse steps that were made before. K lies around the sizes of blocks and words.
TEST_P(Avx2DigitsGemmTest, MultipliesWordsOfIntegers) {
  check({CodeType::i4, DType::f16, 128}, DType::bf16, {1, 2, 3, 0, 97}, 200, 1096);
  check({CodeType::i4, DType::bf16, 48, 0, true}, DType::f16, {1, 2, 8}, 65, 536, DType::f16);
  check({CodeType::i4, {}}, DType::bf16, {2, 3}, 67, 1032);
  check({CodeType::f4_e2m1, DType::f8_e4m3, 16}, DType::bf16, {1, 3}, 200, 304);
  check({CodeType::f4_e2m1, DType::u8, 32}, DType::f16, {1, 2, 66}, 67, 96);
  // More blocks than digits of them are kept, and more panels than a work-group has.
  check({CodeType::i4, DType::f16, 128}, DType::bf16, {1, 3}, 65, 3208);
  check({CodeType::f4_e2m1, DType::u8, 32}, DType::bf16, {1}, 16650, 32);
}

TEST_P(Avx2DigitsGemmTest, ARowDoesNotDependOnTheOthers) {
  const GroupedGemmCase many{{103}, 67, 536, DType::bf16};
  const GroupedProduct product = make_product(many, 13);
  for (const CodeType type : {CodeType::i4, CodeType::f4_e2m1}) {
    const QuantizedOnDevice weights = words({type, DType::f32, 16}, many.n, many.k);
    const std::vector<double> together = multiplied(many, product, weights.weights);
    for (const std::ptrdiff_t row : {0, 5, 102}) {
      GroupedProduct single = product;
      single.rows = 1, single.rows_of_expert = {1};
      single.a.assign(product.a.begin() + row * many.k, product.a.begin() + (row + 1) * many.k);
      GroupedGemmCase one = many;
      one.rows_of_expert = {1};
      EXPECT_EQ(multiplied(one, single, weights.weights),
                std::vector<double>(together.begin() + row * many.n, together.begin() + (row + 1) * many.n))
          << name(type) << ", row " << row;
    }
  }
}

// Rows times a power of two give sums with the same bits, up to the largest exponent. Below the smallest, the sum is 0.
TEST_P(Avx2DigitsGemmTest, ScalesOfRowsReachTheLimitsOfF32) {
  const GroupedGemmCase shape{{2}, 64, 160, DType::bf16};
  GroupedProduct product = make_product(shape, 3);
  for (double& value : product.a) value = std::clamp(value, -1.0, 1.0);
  const QuantizedOnDevice weights = words({CodeType::i4, {}}, shape.n, shape.k);
  const std::vector<double> plain = multiplied(shape, product, weights.weights);
  for (const int exponent : {-90, -40, 40, 105}) {
    GroupedProduct scaled = product;
    for (double& value : scaled.a) value = std::ldexp(value, exponent);
    std::vector<double> expected = plain;
    for (double& value : expected) value = std::ldexp(value, exponent);
    EXPECT_EQ(multiplied(shape, scaled, weights.weights), expected) << exponent;
  }
}

// Numbers keep their bits beside much larger numbers of their row. The weights of the larger numbers are zero.
TEST_P(Avx2DigitsGemmTest, SmallNumbersKeepTheirBitsBesideLargeOnes) {
  constexpr std::int64_t group = 16;
  for (const std::int64_t rows : {1, 3})
    for (const int exponent : {10, 20, 30, 60}) {
      const GroupedGemmCase shape{{rows}, 64, 512, DType::bf16};
      const auto is_small = [](std::size_t k) { return k / group % 8 == 2; };
      GroupedProduct product = make_product(shape, 3);
      for (std::size_t i = 0; i < product.a.size(); ++i)
        if (!is_small(i % 512)) product.a[i] = std::ldexp(product.a[i], exponent);
      QuantizedOnDevice weights = words({CodeType::i4, DType::f32, group}, shape.n, shape.k);
      std::vector<float> scales(weights.values.size() / group);
      read_blocking(device().stream, weights.weights.scale.buffer, scales.data(), scales.size() * 4);
      for (std::size_t i = 0; i < scales.size(); ++i)
        if (!is_small(i / 64 * group)) scales[i] = 0;
      write_blocking(device().stream, weights.weights.scale.buffer, scales.data(), scales.size() * 4);
      for (std::size_t i = 0; i < weights.values.size(); ++i)
        if (!is_small(i % 512)) weights.values[i] = 0;
      product.weights = weights.values;
      EXPECT_LE(grouped_gemm_error(shape, product, multiplied(shape, product, weights.weights)), 1)
          << rows << " rows, 2^" << exponent;
    }
}

TEST_P(Avx2DigitsGemmTest, NumbersOfARowDifferInSize) {
  GroupedGemmCase shape{{1, 4}, 67, 536, DType::bf16};
  shape.extra_roundings = 3;
  GroupedProduct product = make_product(shape, 3);
  for (std::size_t i = 0; i < product.a.size(); ++i)
    product.a[i] = std::ldexp(product.a[i], static_cast<int>(i % 13) * 5);
  const QuantizedOnDevice weights = words({CodeType::f4_e2m1, DType::u8, 32}, shape.n, shape.k, product.experts());
  product.weights = weights.values;
  EXPECT_LE(grouped_gemm_error(shape, product, multiplied(shape, product, weights.weights)), 1);
}

TEST_P(Avx2DigitsGemmTest, WeightsThatAreZeroGiveZero) {
  const GroupedGemmCase shape{{3}, 64, 264, DType::bf16};
  const GroupedProduct product = make_product(shape, 3);
  for (const CodeType type : {CodeType::i4, CodeType::f4_e2m1}) {
    const QuantizedOnDevice weights = words({type, DType::f16, 48}, shape.n, shape.k);
    const std::vector<unsigned char> zeros(weights.codes.size_bytes());
    write_blocking(device().stream, weights.codes.view(), zeros.data(), zeros.size());
    EXPECT_THAT(multiplied(shape, product, weights.weights), testing::Each(0.0)) << name(type);
  }
}

// The products of the largest digits and the largest weights must fit sums of 16 bits.
TEST_P(Avx2DigitsGemmTest, TheLargestDigitsAndWeightsFit) {
  for (const DType a : {DType::bf16, DType::f16}) {
    const GroupedGemmCase shape{{2}, 64, 520, a};
    GroupedProduct product = make_product(shape, 3);
    std::fill_n(product.a.begin(), shape.k, 254);
    std::fill_n(product.a.begin() + shape.k, shape.k, -254);
    for (const auto& [type, largest] : {std::pair(CodeType::i4, 7), {CodeType::f4_e2m1, 6}}) {
      const QuantizedOnDevice weights = words({type, {}}, shape.n, shape.k);
      const std::vector<unsigned char> sevens(weights.codes.size_bytes(), 0x77);
      write_blocking(device().stream, weights.codes.view(), sevens.data(), sevens.size());
      const std::vector<double> out = multiplied(shape, product, weights.weights);
      for (std::size_t i = 0; i < out.size(); ++i)
        EXPECT_EQ(out[i], (i < 64 ? 254.0 : -254.0) * largest * 520) << name(a) << " x " << name(type) << ", " << i;
    }
  }
}

TEST_P(Avx2DigitsGemmTest, RowsThatAreNotFiniteAreNaNAlone) {
  const GroupedGemmCase shape{{4}, 64, 264, DType::bf16};
  GroupedProduct product = make_product(shape, 3);
  product.a[130] = std::numeric_limits<double>::infinity();
  product.a[2 * 264 + 263] = std::numeric_limits<double>::quiet_NaN();
  const QuantizedOnDevice weights = words({CodeType::i4, DType::f16, 48}, shape.n, shape.k);
  const std::vector<double> out = multiplied(shape, product, weights.weights);
  for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(std::isnan(out[i]), i / 64 % 2 == 0) << i;
}

}  // namespace
}  // namespace moecl::test
