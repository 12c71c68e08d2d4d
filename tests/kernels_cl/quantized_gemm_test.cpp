// Grouped products with quantized weights and activations: every format on every variant, against double precision.
#include <gmock/gmock.h>

#include "tests/cases/quantized_matrices.hpp"
#include "tests/kernels_cl/grouped_gemm_operands.hpp"

namespace moecl::test {
namespace {

class QuantizedGemmTest : public OnEveryDevice {
 protected:
  /// `a`: f32, f16, bf16 or i8.
  void check(const QuantizedCase& kind, const std::vector<std::int64_t>& rows, std::int64_t n, std::int64_t k,
             DType a = DType::f32) const {
    GroupedGemmCase shape{rows, n, k, a, DType::f32, DType::f32};
    shape.extra_roundings = 2;
    GroupedProduct product = make_product(shape, 3);
    const QuantizedOnDevice weights(device().stream, kind, product.experts(), n, k, 5);
    product.weights = weights.values;
    int ran = 0;
    for (const grouped_gemm::Variant& variant : grouped_gemm::variants()) {
      SCOPED_TRACE(testing::Message() << variant.name << ": " << shape.describe() << ", " << kind.describe());
      Operands operands(device(), shape, product);
      operands.args.weights = weights.weights;
      if (const std::string reason = grouped_gemm::reject(operands.args, {variant.name}, device().caps());
          !reason.empty()) {
        EXPECT_THAT(reason, testing::StartsWith("variant "));
        continue;
      }
      grouped_gemm::enqueue(device().stream, operands.args, {variant.name});
      EXPECT_LE(grouped_gemm_error(shape, product, operands.out()), 1);
      ++ran;
    }
    EXPECT_GT(ran, 0);
  }
};
MOECL_ON_EVERY_DEVICE(QuantizedGemmTest);

TEST_P(QuantizedGemmTest, MultipliesEveryFormatOfCodes) {
  for (const CodeType type : {CodeType::i8, CodeType::u8, CodeType::i4, CodeType::u4, CodeType::f8_e4m3,
                              CodeType::f8_e5m2, CodeType::f6_e2m3, CodeType::f6_e3m2, CodeType::f4_e2m1})
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

TEST_P(QuantizedGemmTest, MultipliesInt8WithInt4) {
  check({CodeType::i4, {}}, {3, 0, 8}, 67, 70, DType::i8);
  check({CodeType::i4, DType::bf16, 32}, {3, 0, 8}, 67, 70, DType::i8);
  check({CodeType::i8, DType::f32, 32}, {3, 0, 8}, 67, 70, DType::i8);
}

}  // namespace
}  // namespace moecl::test
