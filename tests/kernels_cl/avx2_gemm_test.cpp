// Grouped GEMM on CPUs with AVX2, with AVX-512 (integers alone), or with Arm's products of bytes or of bf16. Operands
// of every scheme are compared with double precision, sums of integers to the last bit. MOECL_CPU_FEATURES hides newer
// extensions of the CPU. CTest runs this file with the variable set for AVX2, and again for AVX-512.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "kernels_cl/gemm/variant.hpp"
#include "tests/cases/quantized_matrices.hpp"
#include "tests/kernels_cl/grouped_gemm_operands.hpp"

namespace moecl::test {
namespace {

class Avx2GemmTest : public OnEveryDevice {
 protected:
  /// The variants of this list that multiply these operands on this device.
  std::vector<std::string> variants_for(Operands& operands) const {
    std::vector<std::string> names;
    for (const char* variant :
         {"avx2", "avx2_digits", "avx_vnni", "avx_vnni_digits", "avx512", "neon_dot", "neon_i8mm", "neon_bf16"})
      if (operands.fitting(variant)) names.emplace_back(variant);
    return names;
  }
  /// Checks every variant that the device offers. With AVX-VNNI there are two for integers without zero points and for
  /// words. With AVX-512 there are variants for integers alone, on Arm for integers and for bf16.
  void check(const GroupedGemmCase& shape, const GroupedProduct& product,
             const PackedWeights* weights = nullptr) const {
    Operands operands(device(), shape, product);
    if (weights != nullptr) operands.args.weights = *weights;
    const std::vector<std::string> names = variants_for(operands);
    const DeviceCaps& caps = device().caps();
    const bool others = ((caps.has_avx512 || caps.has_neon_dot) && shape.a == DType::i8) ||
                        (caps.has_neon_bf16 && shape.a == DType::bf16);
    EXPECT_EQ(names.empty(), !others && (!caps.has_avx2 || caps.has_avx512));
    for (const std::string& name : names) {
      SCOPED_TRACE(testing::Message() << name << ": " << shape.describe());
      Operands of_one(device(), shape, product);
      if (weights != nullptr) of_one.args.weights = *weights;
      grouped_gemm::enqueue(device().stream, of_one.args, {name});
      EXPECT_LE(grouped_gemm_error(shape, product, of_one.out()), 1);
    }
  }
  void check_plain(DType a, DType weights, const std::vector<std::int64_t>& rows, std::int64_t n,
                   std::int64_t k) const {
    const GroupedGemmCase shape{rows, n, k, a, weights, DType::f32, 0, 3, 2, true};
    check(shape, make_product(shape, 7));
  }
  void check_codes(const QuantizedCase& kind, DType a, const std::vector<std::int64_t>& rows, std::int64_t n,
                   std::int64_t k) const {
    SCOPED_TRACE(kind.describe());
    GroupedGemmCase shape{rows, n, k, a, DType::f32, DType::f32};
    shape.extra_roundings = 2;
    GroupedProduct product = make_product(shape, 3);
    const QuantizedOnDevice weights(device().stream, kind, product.experts(), n, k, 5);
    product.weights = weights.values;
    check(shape, product, &weights.weights);
  }
};
MOECL_ON_EVERY_DEVICE(Avx2GemmTest);

// Every number of rows that has its own loop, with streamed and with kept steps. K lies around blocks and steps.
TEST_P(Avx2GemmTest, MultipliesEveryNumberOfRows) {
  const std::vector<std::int64_t> rows = {1, 2, 3, 0, 4, 5, 6, 7, 9, 11, 100};
  for (const DType type : {DType::f32, DType::bf16, DType::f16, DType::i8}) check_plain(type, type, rows, 70, 261);
}

TEST_P(Avx2GemmTest, MultipliesCodes) {
  for (const CodeType type : {CodeType::i8, CodeType::f8_e4m3, CodeType::f8_e5m2, CodeType::f6_e2m3, CodeType::f4_e2m1})
    check_codes({type, {}}, DType::bf16, {1, 8}, 67, 70);
  check_codes({CodeType::u4, DType::f16, 32, 0, true, 1, CodePlacing::words_n_awq}, DType::bf16, {1, 3, 17}, 72, 165);
  check_codes({CodeType::f4_e2m1, DType::u8, 32}, DType::f32, {2, 66}, 67, 97);
  check_codes({CodeType::f4_e2m1, DType::f8_e4m3, 16}, DType::bf16, {3, 20}, 67, 200);
  check_codes({CodeType::f8_e4m3, DType::f32, 128, 0, false, 128}, DType::f16, {4, 13}, 200, 200);
  check_codes({CodeType::i4, DType::f16, 48}, DType::bf16, {7, 13}, 65, 533);
}

TEST_P(Avx2GemmTest, MultipliesIntegersWithScalesOfGroups) {
  check_codes({CodeType::i4, {}}, DType::i8, {1, 2, 8, 70}, 200, 305);
  check_codes({CodeType::i4, DType::f16, 128}, DType::i8, {1, 3, 66}, 200, 305);
  check_codes({CodeType::i8, DType::f32, 544, 0, true}, DType::i8, {1, 14}, 65, 1091);
}

TEST_P(Avx2GemmTest, MultipliesWords) {
  const auto check_words = [&](QuantizedCase kind, DType a, const std::vector<std::int64_t>& rows, std::int64_t n,
                               std::int64_t k) {
    kind.layout = PanelLayout::k_words;
    check_codes(kind, a, rows, n, k);
  };
  const std::vector<std::int64_t> rows = {1, 2, 3, 0, 4, 5, 6, 7, 9, 11, 100};
  for (const CodeType type : {CodeType::i8, CodeType::i4}) {
    check_words({type, {}}, DType::i8, rows, 70, 808);
    check_words({type, DType::f16, 16}, DType::i8, {1, 66}, 130, 304);
    check_words({type, DType::bf16, 48, 0, true}, DType::i8, {1, 97}, 65, 536);
    check_words({type, DType::f16, 128}, DType::i8, {1, 14}, 65, 1096);
  }
  check_words({CodeType::i8, {}}, DType::i8, {1, 7}, 65, 1092);
  for (const CodeType type : {CodeType::f8_e4m3, CodeType::f8_e5m2, CodeType::f4_e2m1})
    check_words({type, {}}, DType::bf16, {1, 8}, 67, 72);
  check_words({CodeType::i4, DType::f16, 48, 0, true}, DType::f16, {1, 97}, 65, 536);
  check_words({CodeType::f4_e2m1, DType::f8_e4m3, 16}, DType::bf16, {1, 2, 3}, 200, 304);
  GroupedGemmCase shape{{1, 9}, 70, 266, DType::bf16, DType::bf16, DType::f32, 0, 3, 2, true};
  shape.layout = PanelLayout::k_words;
  check(shape, make_product(shape, 7));
}

// -128 on both sides gives the largest products and the largest sums of two products.
TEST_P(Avx2GemmTest, SumsInt8Exactly) {
  for (const auto& [out, layout] : {std::pair(DType::i32, PanelLayout::n_major),
                                    {DType::f32, PanelLayout::n_major},
                                    {DType::i32, PanelLayout::k_words}}) {
    GroupedGemmCase shape{{2, 9}, 65, layout == PanelLayout::n_major ? 1401 : 1404, DType::i8, DType::i8, out};
    shape.layout = layout;
    GroupedProduct product = make_product(shape, 3);
    for (double& value : product.a) value = value < 0 ? -128 : 127;
    for (double& value : product.weights) value = value < 0 ? -128 : 127;
    std::fill_n(product.a.begin(), shape.k, -128);
    std::fill_n(product.weights.begin(), shape.k, -128);
    if (out == DType::i32)
      product.a_scale.clear(), product.weight_scale.clear(), product.bias.clear();
    else
      product.a_scale.assign(product.a_scale.size(), 0.5),
          product.weight_scale.assign(product.weight_scale.size(), 0.25);
    const std::vector<double> expected = rounded(out, grouped_gemm_oracle(product).values);
    Operands operands(device(), shape, product);
    for (const std::string& name : variants_for(operands)) {
      Operands of_one(device(), shape, product);
      grouped_gemm::enqueue(device().stream, of_one.args, {name});
      EXPECT_EQ(of_one.out(), expected) << name;
    }
  }
}

// A single row streams the panel in another order than several rows.
TEST_P(Avx2GemmTest, ARowDoesNotDependOnTheOthers) {
  const GroupedGemmCase many{{103}, 67, 531, DType::bf16, DType::bf16};
  const GroupedProduct product = make_product(many, 13);
  for (const CodeType type : {CodeType::bf16, CodeType::f4_e2m1, CodeType::f8_e4m3}) {
    std::optional<QuantizedOnDevice> codes;
    if (type != CodeType::bf16) codes.emplace(device().stream, QuantizedCase{type, {}}, 1, many.n, many.k, 5);
    const auto out_of = [&](const GroupedGemmCase& shape, const GroupedProduct& rows) {
      Operands operands(device(), shape, rows);
      if (codes) operands.args.weights = codes->weights;
      const std::vector<std::string> names = variants_for(operands);
      if (names.empty()) return std::vector<double>();
      grouped_gemm::enqueue(device().stream, operands.args, {names.front()});
      return operands.out();
    };
    const std::vector<double> together = out_of(many, product);
    if (together.empty()) continue;
    for (const std::ptrdiff_t row : {0, 5, 50, 102}) {
      GroupedProduct single = product;
      single.rows = 1, single.rows_of_expert = {1};
      single.a.assign(product.a.begin() + row * many.k, product.a.begin() + (row + 1) * many.k);
      EXPECT_EQ(out_of({{1}, 67, 531, DType::bf16, DType::bf16}, single),
                std::vector<double>(together.begin() + row * 67, together.begin() + (row + 1) * 67))
          << name(type) << ", row " << row;
    }
  }
}

TEST_P(Avx2GemmTest, KeepsNaNInItsColumn) {
  const std::int64_t k = 130, column = 37;
  for (const std::int64_t rows : {1, 8}) {
    const GroupedGemmCase shape{{rows}, 64, k, DType::bf16, DType::f32};
    Operands operands(device(), shape, make_product(shape, 3));
    const QuantizedOnDevice weights(device().stream, {CodeType::f8_e4m3, {}}, 1, shape.n, k, 5);
    const unsigned char nan = 0xff;
    write_blocking(device().stream, weights.codes.view().slice(64 * (k - 40) + column, 1), &nan, 1);
    operands.args.weights = weights.weights;
    const std::vector<std::string> names = variants_for(operands);
    if (names.empty()) continue;
    grouped_gemm::enqueue(device().stream, operands.args, {names.front()});
    const std::vector<double> out = operands.out();
    for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(std::isnan(out[i]), i % 64 == column) << i;
  }
}

}  // namespace
}  // namespace moecl::test
