// Quantized rows, groups and blocks against data that other libraries made.
#include <moecl/code_numbers.hpp>
#include <moecl/quantize_groups.hpp>
#include <moecl/safetensors.hpp>

#include <cmath>
#include <cstring>

#include "tests/devices.hpp"
#include "tests/host/files.hpp"
#include "tests/oracle/edge_cases.hpp"

namespace moecl::test {
namespace {

using quantize_groups::Args;
using quantize_groups::ScaleRule;

/// A golden file's tensor by name.
class GoldenFormats {
 public:
  explicit GoldenFormats(const std::string& name)
      : file_(SafetensorsFile::open(data_path("formats/" + name + ".safetensors"))) {}
  template <class T>
  std::vector<T> read(const std::string& name) const {
    const HostTensor tensor = file_.tensor(name);
    std::vector<T> values(tensor.size_bytes / sizeof(T));
    tensor.data.read(values.data(), tensor.size_bytes);
    return values;
  }
  std::int64_t extent(const std::string& name, std::size_t axis) const { return file_.tensor(name).shape[axis]; }

 private:
  SafetensorsFile file_;
};

class QuantizeGoldensTest : public OnEveryDevice {
 protected:
  bool exact() const { return device().caps().correctly_rounded_divide; }
};
MOECL_ON_EVERY_DEVICE(QuantizeGoldensTest);

TEST_P(QuantizeGoldensTest, ConvertsEveryNumberAsTheGoldens) {
  const std::pair<const char*, CodeType> kinds[] = {{"fp8_e4m3fn", CodeType::f8_e4m3},
                                                    {"fp8_e5m2", CodeType::f8_e5m2},
                                                    {"fp6_e2m3", CodeType::f6_e2m3},
                                                    {"fp6_e3m2", CodeType::f6_e3m2},
                                                    {"fp4_e2m1", CodeType::f4_e2m1}};
  for (const auto& [kind, format] : kinds) {
    SCOPED_TRACE(kind);
    const GoldenFormats golden(std::string("convert_") + kind);
    const auto codes = golden.read<std::uint8_t>("code_saturated"), is_nan = golden.read<std::uint8_t>("is_nan_input");
    const auto table = golden.read<float>("decode_table");
    const auto width = static_cast<std::int64_t>(codes.size());
    const bool is_f8 = minifloat_of(format).bits() == 8;
    const GuardedTensor x(device(), DType::f32, {1, width}, golden.read<float>("input_bits")),
        q(device(), format == CodeType::f8_e4m3 ? DType::f8_e4m3 : DType::f8_e5m2, {1, width}),
        values(device(), DType::f32, {1, width}), scale = upload(device(), DType::f32, {1}, {1});
    Args args;
    args.x = x;
    args.format = format;
    args.rule = ScaleRule::given;
    args.scale = scale;
    args.q = values;
    quantize_groups::enqueue(device().stream, args);
    const auto numbers = values.read<float>();
    for (std::size_t i = 0; i < codes.size(); ++i)
      ASSERT_TRUE(is_nan[i] != 0 ? std::isnan(numbers[i]) : numbers[i] == table[codes[i]]) << "input " << i;
    if (!is_f8) continue;
    args.q = q;
    quantize_groups::enqueue(device().stream, args);
    const auto made = q.read<std::uint8_t>();
    for (std::size_t i = 0; i < codes.size(); ++i)
      ASSERT_TRUE(is_nan[i] != 0 ? std::isnan(table[made[i]]) : made[i] == codes[i]) << "input " << i;
  }
}

TEST_P(QuantizeGoldensTest, TokensAndGroupsAreThoseOfTheGoldens) {
  struct Kind {
    const char* file;
    std::string input, prefix;
    CodeType format;
    DType q;
    std::int64_t group;
    ScaleRule rule = ScaleRule::ratio;
  };
  const Kind kinds[] = {{"fp8_token_group_block", "input", "token", CodeType::f8_e4m3, DType::f8_e4m3, 0},
                        {"fp8_token_group_block", "input", "token_e5m2", CodeType::f8_e5m2, DType::f8_e5m2, 0},
                        {"fp8_token_group_block", "input", "group128", CodeType::f8_e4m3, DType::f8_e4m3, 128},
                        {"fp8_token_group_block", "weight", "weight_channel", CodeType::f8_e4m3, DType::f8_e4m3, 0},
                        {"int8_per_token_per_channel", "input", "input", CodeType::i8, DType::i8, 0},
                        {"int8_per_token_per_channel", "weight", "weight", CodeType::i8, DType::i8, 0},
                        {"int8_per_token_per_channel", "input", "asym", CodeType::i8, DType::i8, 0, ScaleRule::range}};
  for (const Kind& kind : kinds) {
    SCOPED_TRACE(kind.prefix);
    const GoldenFormats golden(kind.file);
    const std::int64_t rows = golden.extent(kind.input, 0), width = golden.extent(kind.input, 1);
    const GuardedTensor x(device(), DType::f32, {rows, width}, golden.read<float>(kind.input)),
        q(device(), kind.q, {rows, width}),
        scale(device(), DType::f32, {rows, golden.extent(kind.prefix + "_scale", 1)}),
        zero(device(), DType::i32, {rows, 1}), values(device(), DType::f32, {rows, width});
    const bool asymmetric = kind.rule == ScaleRule::range;
    Args args;
    args.x = x;
    args.format = kind.format;
    args.group = kind.group;
    args.rule = kind.rule;
    if (asymmetric) args.zero = zero;
    args.q = q;
    args.scale = scale;
    for (const std::int32_t lanes : lane_choices) {
      quantize_groups::enqueue(device().stream, args, {lanes});
      Args numbers = args;
      numbers.q = values;
      quantize_groups::enqueue(device().stream, numbers, {lanes});
      if (exact()) {
        EXPECT_EQ(scale.read<float>(), golden.read<float>(kind.prefix + "_scale"));
        EXPECT_EQ(q.read<std::uint8_t>(), golden.read<std::uint8_t>(kind.prefix + "_q"));
        if (asymmetric) {
          EXPECT_EQ(zero.read<std::int32_t>(), golden.read<std::int32_t>(kind.prefix + "_zero_point"));
        }
        EXPECT_EQ(values.read<float>(), golden.read<float>(kind.prefix + "_dequant"));
      } else {
        const auto dequant = golden.read<float>(kind.prefix + "_dequant");
        EXPECT_LE(relative_error(values.values(), {dequant.begin(), dequant.end()}), 0.01);
      }
    }
  }
}

TEST_P(QuantizeGoldensTest, BlocksAreThoseOfTheGoldens) {
  const GoldenFormats golden("mx_block32");
  const GuardedTensor x(device(), DType::f32, {9, 192}, golden.read<float>("input")),
      scale(device(), DType::u8, {9, 6}), values(device(), DType::f32, {9, 192}),
      codes(device(), DType::f8_e4m3, {9, 192}), e5m2(device(), DType::f8_e5m2, {9, 192});
  const std::pair<std::string, CodeType> kinds[] = {{"mxfp8_e4m3", CodeType::f8_e4m3},
                                                    {"mxfp8_e5m2", CodeType::f8_e5m2},
                                                    {"mxfp6_e2m3", CodeType::f6_e2m3},
                                                    {"mxfp6_e3m2", CodeType::f6_e3m2},
                                                    {"mxfp4_e2m1", CodeType::f4_e2m1}};
  for (const auto& [kind, format] : kinds)
    for (const std::int32_t lanes : lane_choices) {
      SCOPED_TRACE(kind);
      Args args;
      args.x = x;
      args.format = format;
      args.group = 32;
      args.rule = ScaleRule::mx_floor;
      args.q = values;
      args.scale = scale;
      quantize_groups::enqueue(device().stream, args, {lanes});
      EXPECT_EQ(scale.read<std::uint8_t>(), golden.read<std::uint8_t>(kind + ".scale_e8m0"));
      EXPECT_EQ(values.read<float>(), golden.read<float>(kind + ".dequant"));
      if (minifloat_of(format).bits() != 8) continue;
      const GuardedTensor& q = format == CodeType::f8_e4m3 ? codes : e5m2;
      args.q = q;
      quantize_groups::enqueue(device().stream, args, {lanes});
      EXPECT_EQ(q.read<std::uint8_t>(), golden.read<std::uint8_t>(kind + ".code"));
    }
}

TEST_P(QuantizeGoldensTest, NvFp4IsThatOfTheGoldens) {
  const GoldenFormats golden("nvfp4_block16");
  const GuardedTensor x(device(), DType::f32, {24, 96}, golden.read<float>("input")),
      scale(device(), DType::f8_e4m3, {24, 6}), values(device(), DType::f32, {24, 96});
  for (const std::int32_t lanes : lane_choices) {
    Args args;
    args.x = x;
    args.format = CodeType::f4_e2m1;
    args.group = 16;
    args.rule = ScaleRule::e4m3;
    args.global_scale = golden.read<float>("global_scale")[0];
    args.q = values;
    args.scale = scale;
    quantize_groups::enqueue(device().stream, args, {lanes});
    if (exact()) {
      EXPECT_EQ(scale.read<std::uint8_t>(), golden.read<std::uint8_t>("scale_e4m3"));
      EXPECT_EQ(values.read<float>(), golden.read<float>("dequant"));
    } else {
      const auto dequant = golden.read<float>("dequant");
      EXPECT_LE(relative_error(values.values(), {dequant.begin(), dequant.end()}), 0.01);
    }
  }
}

TEST_P(QuantizeGoldensTest, OneScaleOfATensorIsThatOfTheGoldens) {
  const GoldenFormats golden("fp8_token_group_block");
  const std::int64_t rows = golden.extent("weight", 0), width = golden.extent("weight", 1);
  const GuardedTensor x(device(), DType::f32, {rows, width}, golden.read<float>("weight")),
      q(device(), DType::f8_e4m3, {rows, width}), scale(device(), DType::f32, {1});
  Args args;
  args.x = x;
  args.rule = ScaleRule::ratio_over_rows;
  args.q = q;
  args.scale = scale;
  for (const std::int32_t lanes : lane_choices) {
    quantize_groups::enqueue(device().stream, args, {lanes});
    const float expected = golden.read<float>("weight_tensor_scale")[0];
    EXPECT_NEAR(scale.read<float>()[0], expected, exact() ? 0 : 3e-7F * expected);
    if (exact()) {
      EXPECT_EQ(q.read<std::uint8_t>(), golden.read<std::uint8_t>("weight_tensor_q"));
    }
  }
}

}  // namespace
}  // namespace moecl::test
