// Grouped products with quantized weights and activations: every format on every variant, against double precision.
#include <gmock/gmock.h>

#include <cmath>

#include "kernels_cl/gemm/variant.hpp"
#include "tests/cases/quantized_matrices.hpp"
#include "tests/kernels_cl/grouped_gemm_operands.hpp"
#include "tests/sampling.hpp"

namespace moecl::test {
namespace {

/// T0's kernels dequantize rows and weights independently. So f32 rows meet every kind of scales there, bf16 rows every
/// format, and other rows some. Each case runs a sample of these kernels. Extensions have their own loop for each pair
/// of rows and weights.
enum class Variants { all, of_extensions };

class QuantizedGemmTest : public OnEveryDevice {
 protected:
  /// Every variant that runs on this device gives the product of the dequantized weights and rows.
  void check_variants(const GroupedGemmCase& shape, const GroupedProduct& product, const PackedWeights& weights,
                      const std::string& what, Variants which = Variants::all, const QuantizedRows* rows = nullptr,
                      std::int64_t a_group = 0) const {
    int ran = 0, portable = 0;
    ++cases_;
    for (const grouped_gemm::Variant& variant : grouped_gemm::variants()) {
      const bool of_extension = grouped_gemm::find(variant.name)->extension != nullptr;
      if (!of_extension && (which == Variants::of_extensions || !is_sampled(cases_ + portable++, 2))) continue;
      SCOPED_TRACE(testing::Message() << variant.name << ": " << shape.describe() << ", " << what);
      Operands operands(device(), shape, product);
      operands.args.weights = weights;
      if (rows != nullptr) operands.args.a = rows->a, operands.args.a_scale = rows->a_scale;
      operands.args.a_group = a_group;
      const auto args = operands.fitting(variant.name);
      if (!args) {
        EXPECT_THAT(grouped_gemm::reject(operands.args, {variant.name}, device().record()),
                    testing::StartsWith("variant "));
        continue;
      }
      grouped_gemm::enqueue(device().stream, *args, {variant.name});
      const std::string_view kernel = grouped_gemm::find(variant.name)->source->name;
      GroupedGemmCase on_variant = shape;
      on_variant.f8_steps =
          size_bytes(args->a.dtype) == 1 && args->a.dtype != DType::i8 && kernel.rfind("grouped_gemm_wgmma_", 0) == 0;
      EXPECT_LE(grouped_gemm_error(on_variant, product, operands.out()), 1);
      ++ran;
    }
    EXPECT_TRUE(ran > 0 || which == Variants::of_extensions);
  }
  /// Rows of codes, in order and gathered. Scales are for groups of K; if `a_group` is 0, a row has one scale.
  void check_rows(const QuantizedCase& kind, DType a, DType a_scale, std::int64_t a_group, std::int64_t k) const {
    for (const std::int64_t divisor : {0, 2}) {
      GroupedGemmCase shape{{3, 0, 8}, 67, k, DType::f32, DType::f32, DType::f32, 0, 0, divisor};
      shape.extra_roundings = 3;
      check_rows(kind, shape, a, a_scale, a_group);
    }
  }
  void check_rows(const QuantizedCase& kind, const GroupedGemmCase& shape, DType a, DType a_scale,
                  std::int64_t a_group) const {
    GroupedProduct product = make_product(shape, 3);
    const std::int64_t sources = static_cast<std::int64_t>(product.a.size()) / shape.k;
    const QuantizedOnDevice weights(device().stream, kind, product.experts(), shape.n, shape.k, 5);
    const QuantizedRows rows(device().stream, a, a_scale, a_group, sources, shape.k, 7);
    product.weights = weights.values, product.a = rows.values;
    check_variants(shape, product, weights.weights, kind.describe() + ", rows of " + name(a), Variants::all, &rows,
                   a_group);
  }
  /// `a`: f32, f16, bf16 or i8.
  void check(const QuantizedCase& kind, const std::vector<std::int64_t>& rows, std::int64_t n, std::int64_t k,
             DType a = DType::f32, Variants which = Variants::all, std::int64_t divisor = 0) const {
    GroupedGemmCase shape{rows, n, k, a, DType::f32, DType::f32, 0, 0, divisor};
    shape.extra_roundings = 2;
    GroupedProduct product = make_product(shape, 3);
    const QuantizedOnDevice weights(device().stream, kind, product.experts(), n, k, 5);
    product.weights = weights.values;
    check_variants(shape, product, weights.weights, kind.describe(), which);
  }

 private:
  mutable std::size_t cases_ = 0;
};
MOECL_ON_EVERY_DEVICE(QuantizedGemmTest);

TEST_P(QuantizedGemmTest, MultipliesEveryFormatOfCodes) {
  for (const CodeType type : {CodeType::f6_e2m3, CodeType::f6_e3m2, CodeType::i8, CodeType::u8, CodeType::i4,
                              CodeType::u4, CodeType::f8_e4m3, CodeType::f8_e5m2, CodeType::f4_e2m1})
    check({type, {}}, {3, 0, 8}, 67, 70, DType::bf16);
}

TEST_P(QuantizedGemmTest, TakesGroupsOfEveryScale) {
  check({CodeType::f4_e2m1, DType::u8, 32}, {3, 0, 8}, 67, 70);
  check({CodeType::f4_e2m1, DType::f8_e4m3, 16}, {3, 0, 8}, 67, 70);
  check({CodeType::f6_e2m3, DType::u8, 32}, {1, 7}, 130, 96);
  check({CodeType::f8_e4m3, DType::u8, 32}, {1, 7}, 130, 97);
  check({CodeType::i4, DType::f16, 128}, {3, 0, 8}, 67, 300);
  check({CodeType::i8, DType::bf16, 64}, {3, 0, 8}, 67, 130);
  check({CodeType::f8_e4m3, DType::f32, 128, 0, false, 128}, {3, 0, 8}, 200, 200);
}

TEST_P(QuantizedGemmTest, TakesZeroPointsAndThePackingsOfCheckpoints) {
  check({CodeType::u4, DType::f16, 32, 0, true, 1, CodePlacing::words_n_awq}, {3, 0, 8}, 72, 70);
  check({CodeType::u4, DType::f16, 32, 0, true, 1, CodePlacing::words_k, 1}, {3, 0, 8}, 67, 70);
  check({CodeType::u8, DType::f32, 32, 0, true, 1, CodePlacing::along_k, 1}, {3, 0, 8}, 67, 70);
  check({CodeType::i8, DType::f32, 70, 0, true}, {3, 0, 8}, 67, 70);
}

TEST_P(QuantizedGemmTest, TakesGroupsInAnyOrder) {
  check({CodeType::u4, DType::f16, 0, 5, true, 1, CodePlacing::words_k, 1}, {3, 0, 8}, 67, 130);
  check({CodeType::i4, DType::bf16, 0, 3}, {3, 0, 8}, 67, 130);
}

TEST_P(QuantizedGemmTest, TakesOddSizesAndManyRows) {
  for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 97}) check({CodeType::i4, DType::f16, 32}, {rows}, 65, 33);
  for (const auto& [n, k] : {std::pair{1, 1}, {17, 257}, {64, 64}, {129, 17}})
    check({CodeType::f4_e2m1, DType::u8, 32}, {1, 9}, n, k);
}

// Operands of tensor cores and of AVX-512 BF16. The sizes cover their steps and tails.
TEST_P(QuantizedGemmTest, MultipliesShortRowsWithCodes) {
  const auto check_short = [&](const QuantizedCase& kind, const std::vector<std::int64_t>& rows, std::int64_t n,
                               std::int64_t k) {
    // Rows in order, which TMA copies as boxes, and gathered rows.
    check(kind, rows, n, k, DType::f16, Variants::of_extensions);
    check(kind, rows, n, k, DType::bf16, Variants::of_extensions, 2);
  };
  for (const CodeType type : {CodeType::i8, CodeType::i4, CodeType::f8_e4m3, CodeType::f8_e5m2, CodeType::f4_e2m1})
    check_short({type, {}}, {3, 0, 8, 70}, 200, 165);
  check_short({CodeType::u4, DType::f16, 128, 0, true, 1, CodePlacing::words_n_awq}, {3, 0, 17}, 136, 300);
  check_short({CodeType::i4, DType::bf16, 32}, {3, 0, 66}, 130, 300);
  check_short({CodeType::u8, DType::f32, 32, 0, true, 1, CodePlacing::along_k, 1}, {3, 0, 8}, 67, 300);
  check_short({CodeType::f4_e2m1, DType::u8, 32}, {66, 1}, 67, 200);
  check_short({CodeType::f4_e2m1, DType::f8_e4m3, 16}, {3, 0, 20}, 67, 200);
  check_short({CodeType::f8_e4m3, DType::f32, 128, 0, false, 128}, {3, 0, 8}, 200, 200);
  check({CodeType::i4, DType::f16, 32}, {3, 0, 8, 70}, 200, 165, DType::f16);
  check({CodeType::f8_e4m3, DType::u8, 32}, {3, 0, 8, 70}, 200, 165, DType::bf16);
}

TEST_P(QuantizedGemmTest, TakesGroupsAcrossTheBlocksOfATile) {
  for (const DType rows : {DType::bf16, DType::i8}) {
    check({CodeType::i4, DType::f16, 48}, {7, 0, 13}, 65, 533, rows);
    check({CodeType::i4, DType::bf16, 192}, {8, 0, 9}, 65, 533, rows);  // three lines of K where a step is two
    check({CodeType::i8, DType::f32, 544, 0, true}, {1, 14}, 65, 1091, rows);
  }
  check({CodeType::f6_e3m2, DType::u8, 32}, {1, 97}, 65, 290, DType::bf16);
}

TEST_P(QuantizedGemmTest, ARowDoesNotDependOnTheOthers) {
  const auto check_rows = [&](const QuantizedCase& kind, DType a) {
    const GroupedGemmCase shape{{103}, 7, 1091, a, DType::f32, DType::f32};
    const GroupedProduct product = make_product(shape, 3);
    const QuantizedOnDevice weights(device().stream, kind, 1, shape.n, shape.k, 5);
    std::string variant;  // chosen for all rows together
    const auto rows_of = [&](const GroupedGemmCase& rows, const GroupedProduct& of) {
      Operands operands(device(), rows, of);
      operands.args.weights = weights.weights;
      if (variant.empty()) variant = grouped_gemm::select(operands.args, {}, device().record());
      grouped_gemm::enqueue(device().stream, operands.args, {variant});
      return operands.out();
    };
    const std::vector<double> together = rows_of(shape, product);
    for (const std::int64_t row : {0, 5, 50, 102}) {
      GroupedProduct single = product;
      single.rows = 1, single.rows_of_expert = {1};
      single.a.assign(product.a.begin() + row * shape.k, product.a.begin() + (row + 1) * shape.k);
      if (!product.a_scale.empty()) single.a_scale = {product.a_scale[static_cast<std::size_t>(row)]};
      GroupedGemmCase one = shape;
      one.rows_of_expert = {1};
      const auto begin = together.begin() + row * shape.n;
      EXPECT_EQ(rows_of(one, single), std::vector<double>(begin, begin + shape.n))
          << variant << ": " << kind.describe() << ", row " << row;
    }
  };
  check_rows({CodeType::i4, DType::f16, 32, 0, true}, DType::bf16);
  check_rows({CodeType::f4_e2m1, DType::f8_e4m3, 16}, DType::bf16);
  check_rows({CodeType::f8_e4m3, DType::f32, 544}, DType::bf16);
  check_rows({CodeType::i8, DType::f32, 544}, DType::i8);
}

TEST_P(QuantizedGemmTest, MultipliesInt8WithInt4) {
  check({CodeType::i4, {}}, {3, 0, 8}, 67, 70, DType::i8);
  check({CodeType::i4, DType::bf16, 32}, {3, 0, 8}, 67, 70, DType::i8);
  check({CodeType::i8, DType::f32, 32}, {3, 0, 8}, 67, 70, DType::i8);
  for (const CodeType type : {CodeType::i8, CodeType::i4}) {
    check({type, {}}, {3, 0, 8, 70}, 200, 305, DType::i8);
    check({type, DType::f16, 128}, {3, 0, 66}, 200, 305, DType::i8, Variants::of_extensions);
  }
}

TEST_P(QuantizedGemmTest, MultipliesRowsOfCodesWithAScaleEach) {
  check_rows({CodeType::f8_e4m3, {}}, DType::f8_e4m3, DType::f32, 0, 70);
  check_rows({CodeType::f8_e5m2, {}}, DType::f8_e5m2, DType::f32, 0, 1090);
  check_rows({CodeType::i8, {}}, DType::i8, DType::f32, 0, 70);
}

TEST_P(QuantizedGemmTest, MultipliesRowsOfCodesWithScalesOfGroups) {
  check_rows({CodeType::f8_e4m3, DType::f32, 128, 0, false, 128}, DType::f8_e4m3, DType::f32, 128, 200);
  check_rows({CodeType::f8_e4m3, DType::f32, 128, 0, false, 128}, DType::f8_e4m3, DType::f32, 128, 1090);
  check_rows({CodeType::f8_e4m3, DType::u8, 32}, DType::f8_e4m3, DType::u8, 32, 290);
  check_rows({CodeType::f8_e5m2, DType::f32, 64}, DType::f8_e5m2, DType::f32, 128, 290);
  check_rows({CodeType::f4_e2m1, DType::u8, 32}, DType::u8, DType::u8, 32, 97);
  check_rows({CodeType::f4_e2m1, DType::f8_e4m3, 16}, DType::u8, DType::f8_e4m3, 16, 70);
  check_rows({CodeType::f4_e2m1, DType::u8, 32}, DType::f8_e4m3, DType::u8, 32, 70);
  check_rows({CodeType::f8_e5m2, {}}, DType::f8_e5m2, DType::f32, 64, 70);
  check_rows({CodeType::i4, DType::f16, 32}, DType::i8, DType::f32, 64, 70);
  check_rows({CodeType::i8, {}}, DType::i8, DType::f32, 32, 70);
}

TEST_P(QuantizedGemmTest, MultipliesKMajorPanels) {
  const auto check_k_major = [&](QuantizedCase kind, const std::vector<std::int64_t>& rows, std::int64_t n,
                                 std::int64_t k, DType a_scale, std::int64_t a_group) {
    kind.layout = PanelLayout::k_major;
    for (const std::int64_t divisor : {0, 2}) {
      GroupedGemmCase shape{rows, n, k, DType::f32, DType::f32, DType::f32, 0, 0, divisor};
      shape.extra_roundings = 3;
      check_rows(kind, shape, *storage_dtype(kind.type), a_scale, a_group);
    }
  };
  check_k_major({CodeType::f8_e4m3, DType::f32, 128, 0, false, 128}, {3, 0, 8, 70}, 200, 384, DType::f32, 128);
  check_k_major({CodeType::f8_e4m3, DType::f16, 128, 0, false, 64}, {130, 65, 0, 1}, 320, 512, DType::f32, 128);
  check_k_major({CodeType::f8_e4m3, DType::u8, 32}, {3, 0, 8}, 67, 256, DType::u8, 32);
  check_k_major({CodeType::f8_e5m2, {}}, {3, 0, 131}, 67, 128, DType::f32, 0);
  check_k_major({CodeType::i8, {}}, {3, 0, 66}, 200, 384, DType::f32, 0);
  check_k_major({CodeType::i8, DType::f16, 64}, {9}, 67, 128, DType::f32, 128);
}

TEST_P(QuantizedGemmTest, CountsTilesAnewInEveryLaunch) {
  const DeviceCaps& caps = device().caps();
  if (!caps.nv_sm90a) return;  // no other variant counts tiles
  const std::string variant = "nv_sm90a_blocks_128";
  constexpr int counters = 256;  // launches take them in turn
  // Four tiles of rows for each 256 columns: more tiles than compute units.
  const std::int64_t n = 256 * (caps.compute_units / 4 + 1);
  GroupedGemmCase shape{{3, 130, 65}, n, 128, DType::f32, DType::f32, DType::f32, 0, 0, 2};
  shape.extra_roundings = 3, shape.f8_steps = true;
  GroupedProduct product = make_product(shape, 3);
  QuantizedCase kind{CodeType::f8_e4m3, DType::f32, 128, 0, false, 128};
  kind.layout = PanelLayout::k_major;
  const QuantizedOnDevice weights(device().stream, kind, product.experts(), shape.n, shape.k, 5);
  const QuantizedRows rows(device().stream, DType::f8_e4m3, DType::f32, 128,
                           static_cast<std::int64_t>(product.a.size()) / shape.k, shape.k, 7);
  product.weights = weights.values, product.a = rows.values;
  Operands operands(device(), shape, product);
  operands.args.weights = weights.weights, operands.args.a = rows.a, operands.args.a_scale = rows.a_scale;
  operands.args.a_group = 128;
  for (int i = 0; i < counters; ++i) grouped_gemm::enqueue(device().stream, operands.args, {variant});
  const Operands after(device(), shape, product);
  operands.args.out = after.args.out;
  grouped_gemm::enqueue(device().stream, operands.args, {variant});
  EXPECT_LE(grouped_gemm_error(shape, product, after.out()), 1);
}

TEST_P(QuantizedGemmTest, KMajorPanelsAreRefusedWhereNobodyReadsThem) {
  QuantizedCase kind{CodeType::f8_e4m3, {}};
  kind.layout = PanelLayout::k_major;
  const GroupedGemmCase shape{{5}, 65, 128};
  Operands operands(device(), shape, make_product(shape, 3));
  operands.args.weights = QuantizedOnDevice(device().stream, kind, 1, 65, 128, 5).weights;
  const auto refusal = [&](const grouped_gemm::Args& args, const std::string& variant = "") {
    return grouped_gemm::reject(args, {variant}, device().record());
  };
  EXPECT_THAT(refusal(operands.args, "t0_tile"), testing::StartsWith("variant t0_tile: "));
  grouped_gemm::Args args = operands.args;
  args.weights.k = 127;
  EXPECT_THAT(refusal(args), testing::HasSubstr("K a multiple of 128"));
  args = operands.args, args.weights.type = CodeType::i4;
  EXPECT_THAT(refusal(args), testing::HasSubstr("8-bit codes"));
}

TEST_P(QuantizedGemmTest, MultipliesPanelsOfWords) {
  const auto check_words = [&](QuantizedCase kind, const std::vector<std::int64_t>& rows, std::int64_t n,
                               std::int64_t k, DType a, Variants which = Variants::of_extensions) {
    kind.layout = PanelLayout::k_words;
    check(kind, rows, n, k, a, which);
  };
  for (const CodeType type : {CodeType::i8, CodeType::u8, CodeType::i4, CodeType::u4, CodeType::f8_e4m3,
                              CodeType::f8_e5m2, CodeType::f4_e2m1})
    check_words({type, {}}, {3, 0, 9, 70}, 67, 296, DType::f32, Variants::all);
  for (const CodeType type : {CodeType::i8, CodeType::i4}) {
    check_words({type, {}}, {1, 2, 4, 5, 97}, 200, 1064, DType::i8);
    check_words({type, DType::f16, 16}, {3, 0, 66}, 130, 304, DType::i8);
    check_words({type, DType::bf16, 48, 0, true}, {1, 97}, 65, 536, DType::i8);
    check_words({type, DType::f16, 128}, {1, 14}, 65, 1096, DType::i8);
  }
  check_words({CodeType::i8, {}}, {1, 7}, 65, 1092, DType::i8);
  check_words({CodeType::u4, DType::f16, 32, 0, true, 1, CodePlacing::words_n_awq}, {3, 0, 8}, 72, 96, DType::f32,
              Variants::all);
  check_words({CodeType::u4, DType::f16, 0, 5, true, 1, CodePlacing::words_k, 1}, {3, 0, 8}, 67, 136, DType::f32,
              Variants::all);
  check_words({CodeType::f4_e2m1, DType::f8_e4m3, 16}, {3, 0, 8}, 67, 72, DType::bf16);
  check_words({CodeType::f8_e4m3, DType::f32, 128, 0, false, 128}, {3, 0, 8}, 200, 200, DType::bf16);
}

TEST_P(QuantizedGemmTest, WordsOfOtherBitsAreRefused) {
  QuantizedCase kind{CodeType::i4, {}};
  kind.layout = PanelLayout::k_words;
  const GroupedGemmCase shape{{5}, 65, 64};
  Operands operands(device(), shape, make_product(shape, 3));
  operands.args.weights = QuantizedOnDevice(device().stream, kind, 1, 65, 64, 5).weights;
  const auto refusal = [&](CodeType type, std::int64_t k) {
    grouped_gemm::Args args = operands.args;
    args.weights.type = type, args.weights.k = k;
    return grouped_gemm::reject(args, {}, device().record());
  };
  EXPECT_THAT(refusal(CodeType::i4, 60), testing::HasSubstr("K = 60"));
  EXPECT_THAT(refusal(CodeType::f6_e2m3, 32), testing::HasSubstr("got f6_e2m3"));
  EXPECT_THAT(refusal(CodeType::f32, 8), testing::HasSubstr("got f32"));
}

TEST_P(QuantizedGemmTest, PowersOfTwoAsScalesAreExactFarFromOne) {
  const QuantizedOnDevice weights(device().stream, {CodeType::f4_e2m1, DType::u8, 32}, 1, 65, 32, 5);
  for (const DType a : {DType::f32, DType::bf16}) {
    SCOPED_TRACE(name(a));
    const GroupedGemmCase shape{{5}, 65, 32, a};
    const GroupedProduct product = make_product(shape, 3);
    // The product of the rows times 2^power, where every scale is `code`.
    const auto scaled_by = [&](unsigned code, int power) {
      enqueue_fill(device().stream, weights.scale.view(), code * 0x01010101U);
      GroupedProduct scaled = product;
      for (double& value : scaled.a) value = std::ldexp(value, power);
      const Operands operands(device(), shape, scaled);
      grouped_gemm::Args args = operands.args;
      args.weights = weights.weights;
      grouped_gemm::enqueue(device().stream, args);
      return operands.out();
    };
    const std::vector<double> plain = scaled_by(127, 0);
    // With bf16 rows a kernel may sum before it applies the scale. The sums must not overflow.
    for (const unsigned code : {a == DType::f32 ? 4U : 8U, 64U, 200U, 240U})
      EXPECT_EQ(scaled_by(code, 127 - static_cast<int>(code)), plain) << code;
    EXPECT_THAT(scaled_by(255, 0), testing::Each(testing::IsNan()));
    if (device().caps().nv_compute_capability == 0) continue;  // others may flush subnormals to 0
    std::vector<double> smallest = scaled_by(0, 120);
    for (double& value : smallest) value = std::ldexp(value, 7);
    EXPECT_EQ(smallest, plain);
  }
}

// Kernels that multiply codes by their scale have no bf16 number for the product with a large scale.
TEST_P(QuantizedGemmTest, PowersOfTwoAsScalesDifferFromColumnToColumn) {
  constexpr std::int64_t n = 65, k = 128, groups = 4, panels = 2;
  const QuantizedOnDevice weights(device().stream, {CodeType::f4_e2m1, DType::u8, 32}, 1, n, k, 5);
  const GroupedGemmCase shape{{9}, n, k, DType::bf16};
  const GroupedProduct product = make_product(shape, 3);
  // A warp has sixteen columns. A single one of them may have a large scale.
  const auto code_of = [](std::int64_t column) {
    const auto at = static_cast<int>(column % 64);
    return at / 16 == 1 ? (at == 25 ? 150 : 120) : 127 + at % 7 * 11;
  };
  int ran = 0;
  for (const std::uint64_t first : {0U, 1U})  // byte where the scales begin
    for (const grouped_gemm::Variant& variant : grouped_gemm::variants()) {
      SCOPED_TRACE(testing::Message() << variant.name << ", scales from byte " << first);
      const auto scaled_by = [&](auto&& of_column) -> std::vector<double> {
        std::vector<unsigned char> codes(first);
        for (std::int64_t i = 0; i < panels * groups * 64; ++i)
          codes.push_back(static_cast<unsigned char>(of_column(i / (groups * 64) * 64 + i % 64)));
        const Buffer scale(*device().context, codes.size());
        write_blocking(device().stream, scale.view(), codes.data(), codes.size());
        Operands operands(device(), shape, product);
        operands.args.weights = weights.weights;
        operands.args.weights.scale =
            TensorView(scale.view().slice(first, codes.size() - first), DType::u8, {1, panels, groups, 64});
        const auto args = operands.fitting(variant.name);
        if (!args) return {};
        grouped_gemm::enqueue(device().stream, *args, {variant.name});
        return operands.out();
      };
      std::vector<double> expected = scaled_by([](std::int64_t) { return 127; });
      for (std::size_t i = 0; i < expected.size(); ++i)
        expected[i] = std::ldexp(expected[i], code_of(static_cast<std::int64_t>(i % n)) - 127);
      EXPECT_EQ(scaled_by(code_of), expected);
      ran += !expected.empty();
    }
  EXPECT_GE(ran, 2);
}

// Packed weights take the bits of their codes, and no more.
TEST(PackedWeightsTest, TakeTheBitsOfTheirCodes) {
  for (const auto& [type, code_bits] : {std::pair{CodeType::i8, 8},
                                        {CodeType::i4, 4},
                                        {CodeType::f8_e5m2, 8},
                                        {CodeType::f6_e2m3, 6},
                                        {CodeType::f6_e3m2, 6},
                                        {CodeType::f4_e2m1, 4},
                                        {CodeType::bf16, 16}})
    EXPECT_EQ(PackedWeights::size_bytes(type, 3, 128, 100), 3U * 128 * 100 * static_cast<unsigned>(code_bits) / 8);
  EXPECT_EQ(PackedWeights::size_bytes(CodeType::f6_e2m3, 1, 65, 3), 2U * 48 * 3);
}

TEST_P(QuantizedGemmTest, SaysWhyItRejects) {
  const GroupedGemmCase shape{{4, 3}, 65, 70};
  const Operands operands(device(), shape, make_product(shape, 1));
  const QuantizedOnDevice weights(device().stream, {CodeType::u4, DType::f16, 32, 0, true}, 2, 65, 70, 2);
  const auto reason = [&](auto change) {
    grouped_gemm::Args args = operands.args;
    args.weights = weights.weights;
    change(args);
    return grouped_gemm::reject(args, {}, device().record());
  };
  using Args = grouped_gemm::Args;
  using testing::HasSubstr;
  EXPECT_EQ(reason([](Args&) {}), "");
  EXPECT_THAT(reason([](Args& args) { args.weights.type = CodeType::u4; }), HasSubstr("u4 is packed as i4"));
  EXPECT_THAT(reason([](Args& args) { args.weights.type = CodeType::f4_e2m1; }),
              HasSubstr("zero of weights: expected i16 of the shape of scale f16[2, 2, 3, 64] beside integers"));
  EXPECT_THAT(reason([](Args& args) { args.weights.group = 16; }),
              HasSubstr("16 columns do not give the 3 groups of scale in K = 70"));
  EXPECT_THAT(reason([](Args& args) { args.weights.scale.dtype = DType::i32; }),
              HasSubstr("scale of weights: expected"));
  EXPECT_THAT(reason([](Args& args) { args.weights.group_index = args.row_ends; }),
              HasSubstr("group_index of weights: expected i32[2, 70], got i32[2]"));
  EXPECT_THAT(reason([](Args& args) { args.a_group = 24; }), HasSubstr("a_group: 24 columns are no positive multiple"));
  EXPECT_THAT(reason([](Args& args) { args.a_group = 32; }), HasSubstr("a_scale: expected f32, u8 or f8_e4m3 [7, 3]"));
  EXPECT_THAT(reason([](Args& args) { args.a.dtype = DType::u8; }), HasSubstr("or u8 [M, 35], got u8[7, 70]"));
  EXPECT_THAT(reason([](Args& args) { args.out.dtype = DType::i32; }), HasSubstr("out: expected f32, f16, bf16 or i8"));
}

}  // namespace
}  // namespace moecl::test
