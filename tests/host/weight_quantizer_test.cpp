#include "host/checkpoint/weight_quantizer.hpp"

#include <moecl/safetensors.hpp>

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "tests/host/files.hpp"
#include "tests/oracle/weight_matrix.hpp"

namespace moecl::test {
namespace {

using testing::HasSubstr;

std::vector<float> floats(const SafetensorsFile& file, const std::string& name) {
  const HostTensor tensor = file.tensor(name);
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  tensor.data.read(values.data(), tensor.size_bytes);
  return values;
}

// Against what PyTorch, ml_dtypes and numpy made of the same numbers.
TEST(WeightQuantizerTest, GivesTheRecordedNumbers) {
  struct Case {
    const char *file, *input, *expected;
    OperandQuant to;
  };
  const Case cases[] = {
      {"int8_per_token_per_channel", "weight", "weight_dequant", QuantScheme::int8_w8a8().weights},
      {"fp8_token_group_block", "weight", "weight_channel_dequant", QuantScheme::fp8_w8a8().weights},
      {"fp8_token_group_block", "weight", "weight_block_dequant", QuantScheme::fp8_w8a8_block().weights},
      {"mx_block32", "input", "mxfp4_e2m1.dequant", QuantScheme::mx(CodeType::f4_e2m1)},
      {"mx_block32", "input", "mxfp6_e2m3.dequant", QuantScheme::mx(CodeType::f6_e2m3)},
      {"mx_block32", "input", "mxfp6_e3m2.dequant", QuantScheme::mx(CodeType::f6_e3m2)},
      {"mx_block32", "input", "mxfp8_e4m3.dequant", QuantScheme::mx(CodeType::f8_e4m3)},
      {"mx_block32", "input", "mxfp8_e5m2.dequant", QuantScheme::mx(CodeType::f8_e5m2)},
      {"nvfp4_block16", "input", "dequant", QuantScheme::nvfp4()},
  };
  for (const Case& of : cases) {
    SCOPED_TRACE(of.expected);
    const SafetensorsFile file = SafetensorsFile::open(data_path("formats/" + std::string(of.file) + ".safetensors"));
    const std::vector<float> input = floats(file, of.input), expected = floats(file, of.expected);
    const std::int64_t rows = file.tensor(of.input).shape[0], columns = file.tensor(of.input).shape[1];
    const QuantizedWeights found = quantize_weights(HostMatrix(input.data(), DType::f32, rows, columns), of.to);
    for (std::int64_t n = 0; n < rows; ++n)
      for (std::int64_t k = 0; k < columns; ++k) {
        const auto at = static_cast<std::size_t>(n * columns + k);
        const double value = weight_element(found.matrix, n, k);
        ASSERT_FLOAT_EQ(static_cast<float>(value), expected[at]) << n << ", " << k;
      }
  }
}

TEST(WeightQuantizerTest, NoElementIsFartherThanHalfAStep) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> input(12 * 128);
  for (float& value : input) value = normal(random) + 0.5F;
  const HostMatrix matrix(input.data(), DType::f32, 12, 128);
  for (const OperandQuant& to :
       {QuantScheme::int4_w4a16(32).weights, QuantScheme::int4_w4a16(32, true).weights,
        QuantScheme::int4_w4a16(ScaleGroup::whole, true).weights,
        OperandQuant{CodeType::i8, ScaleGroup::per_channel(), ScaleFormat::real},
        OperandQuant{CodeType::u8, ScaleGroup::per_group(64)}, OperandQuant{CodeType::i4, ScaleGroup::per_group(64)}}) {
    const QuantizedWeights found = quantize_weights(matrix, to);
    SCOPED_TRACE(describe(QuantScheme{{}, to}));
    for (std::int64_t n = 0; n < 12; ++n)
      for (std::int64_t k = 0; k < 128; ++k) {
        const std::int64_t group = to.group.columns == ScaleGroup::whole ? 0 : k / to.group.columns;
        const double value = input[static_cast<std::size_t>(n * 128 + k)];
        const double difference = weight_element(found.matrix, n, k) - value;
        ASSERT_LE(std::abs(difference), 0.5001 * matrix_element(found.matrix.scale, n, group)) << n << ", " << k;
      }
  }
}

TEST(WeightQuantizerTest, ZerosAndTransposedHalvesAndWhatHasNoCode) {
  const std::vector<float> zeros(64);
  for (const auto& [name, scheme] : named_schemes()) {
    const QuantizedWeights found = quantize_weights(HostMatrix(zeros.data(), DType::f32, 2, 32), scheme.weights);
    for (std::int64_t k = 0; k < 32; ++k) ASSERT_EQ(weight_element(found.matrix, 1, k), 0) << name;
  }
  const std::vector<std::uint16_t> halves = {0x3f80, 0xc000, 0x4040, 0x4080};  // bf16 1, -2, 3, 4
  HostMatrix turned(halves.data(), DType::bf16, 2, 2);
  std::swap(turned.row_stride, turned.column_stride);
  const QuantizedWeights found = quantize_weights(turned, QuantScheme::int8_w8a8().weights);
  EXPECT_NEAR(weight_element(found.matrix, 0, 1), 3, 0.02);
  EXPECT_NEAR(weight_element(found.matrix, 1, 0), -2, 0.02);

  const std::vector<float> bad = {1, std::numeric_limits<float>::infinity()};
  const HostMatrix with_infinity(bad.data(), DType::f32, 1, 2);
  EXPECT_THAT(error_of([&] { quantize_weights(with_infinity, QuantScheme::fp8_w8a8().weights); }).what(),
              HasSubstr("element [0, 1] is inf"));
  const HostMatrix odd(zeros.data(), DType::f32, 1, 33);
  EXPECT_THAT(error_of([&] { quantize_weights(odd, QuantScheme::mxfp4_w4a16().weights); }).what(),
              HasSubstr("33 columns of f4_e2m1 codes do not fill bytes"));
  EXPECT_THAT(error_of([&] { quantize_weights(odd, {}); }).what(), HasSubstr("plain weights"));
}

}  // namespace
}  // namespace moecl::test
