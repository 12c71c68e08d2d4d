#include <moecl/bf16.hpp>
#include <moecl/e8m0.hpp>
#include <moecl/f16.hpp>
#include <moecl/fp4.hpp>
#include <moecl/fp6.hpp>
#include <moecl/fp8.hpp>
#include <moecl/safetensors.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "tests/host/files.hpp"

namespace moecl::test {
namespace {

template <class T>
std::vector<T> values(const SafetensorsFile& file, const char* name) {
  const HostTensor tensor = file.tensor(name);
  std::vector<T> out(tensor.size_bytes / sizeof(T));
  tensor.data.read(out.data(), tensor.size_bytes);
  return out;
}

float from_bits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

using FromF32 = std::uint16_t (*)(float) noexcept;
using ToF32 = float (*)(std::uint16_t) noexcept;

/// Every conversion of the file gives its code; NaN stays NaN of the same sign.
void check_conversions(const SafetensorsFile& file, FromF32 from_f32, ToF32 to_f32) {
  const auto inputs = values<std::uint32_t>(file, "input_bits");
  const auto codes = values<std::uint16_t>(file, "code");
  ASSERT_EQ(inputs.size(), codes.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const float input = from_bits(inputs[i]);
    const std::uint16_t code = from_f32(input);
    if (std::isnan(input)) {
      ASSERT_TRUE(std::isnan(to_f32(code))) << std::hex << inputs[i];
      ASSERT_EQ(std::signbit(to_f32(code)), std::signbit(input)) << std::hex << inputs[i];
    } else {
      ASSERT_EQ(code, codes[i]) << std::hex << inputs[i];
    }
  }
}

TEST(FloatFormatsTest, Bf16RoundsAsTheGoldenConversions) {
  check_conversions(SafetensorsFile::open(data_path("formats/convert_bf16.safetensors")), bf16_from_f32, bf16_to_f32);
}

TEST(FloatFormatsTest, F16RoundsAsTheGoldenConversions) {
  check_conversions(SafetensorsFile::open(data_path("formats/convert_f16.safetensors")), f16_from_f32, f16_to_f32);
}

TEST(FloatFormatsTest, F16DecodesEveryCode) {
  const auto table = values<float>(SafetensorsFile::open(data_path("formats/convert_f16.safetensors")), "decode_table");
  ASSERT_EQ(table.size(), 65536U);
  for (std::uint32_t code = 0; code < table.size(); ++code) {
    const float value = f16_to_f32(static_cast<std::uint16_t>(code));
    ASSERT_TRUE(std::isnan(table[code]) ? std::isnan(value) : value == table[code]) << std::hex << code;
    ASSERT_EQ(std::signbit(value), std::signbit(table[code])) << std::hex << code;
  }
}

TEST(FloatFormatsTest, EveryCodeSurvivesTheRoundTrip) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto code = static_cast<std::uint16_t>(i);
    ASSERT_TRUE(std::isnan(f16_to_f32(code)) || f16_from_f32(f16_to_f32(code)) == code) << std::hex << i;
    ASSERT_TRUE(std::isnan(bf16_to_f32(code)) || bf16_from_f32(bf16_to_f32(code)) == code) << std::hex << i;
  }
}

struct NamedMinifloat {
  const char* path;
  Minifloat format;
  bool has_nan;
};

const NamedMinifloat minifloats[] = {{"formats/convert_fp8_e4m3fn.safetensors", fp8_e4m3fn, true},
                                     {"formats/convert_fp8_e5m2.safetensors", fp8_e5m2, true},
                                     {"formats/convert_fp6_e2m3.safetensors", fp6_e2m3, false},
                                     {"formats/convert_fp6_e3m2.safetensors", fp6_e3m2, false},
                                     {"formats/convert_fp4_e2m1.safetensors", fp4_e2m1, false}};

TEST(FloatFormatsTest, MinifloatsRoundAsTheGoldenConversionsAndSaturate) {
  for (const auto& [path, format, has_nan] : minifloats) {
    SCOPED_TRACE(path);
    const SafetensorsFile file = SafetensorsFile::open(data_path(path));
    const auto inputs = values<std::uint32_t>(file, "input_bits");
    const auto codes = values<std::uint8_t>(file, "code_saturated");
    ASSERT_EQ(inputs.size(), codes.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const float input = from_bits(inputs[i]);
      const std::uint8_t code = format.encode(input);
      if (!std::isnan(input))
        ASSERT_EQ(code, codes[i]) << std::hex << inputs[i];
      else if (has_nan)
        ASSERT_TRUE(std::isnan(format.decode(code))) << std::hex << inputs[i];
      else
        ASSERT_EQ(format.decode(code), 0) << std::hex << inputs[i];
    }
  }
}

TEST(FloatFormatsTest, MinifloatsDecodeEveryCode) {
  for (const auto& [path, format, has_nan] : minifloats) {
    SCOPED_TRACE(path);
    const auto table = values<float>(SafetensorsFile::open(data_path(path)), "decode_table");
    ASSERT_EQ(table.size(), std::size_t{1} << format.bits());
    for (std::size_t code = 0; code < table.size(); ++code) {
      const float value = format.decode(static_cast<std::uint8_t>(code));
      if (std::isnan(table[code])) {
        ASSERT_TRUE(std::isnan(value)) << code;
        continue;
      }
      ASSERT_EQ(value, table[code]) << code;
      ASSERT_EQ(std::signbit(value), std::signbit(table[code])) << code;
    }
  }
}

TEST(FloatFormatsTest, E1M2HasStepsOfAQuarter) {
  for (int code = 0; code < 8; ++code) {
    EXPECT_EQ(fp4_e1m2.decode(static_cast<std::uint8_t>(code)), 0.25F * static_cast<float>(code));
    EXPECT_EQ(fp4_e1m2.encode(-0.25F * static_cast<float>(code)), 8 + code);
  }
  EXPECT_EQ(fp4_e1m2.encode(0.375F), 2);
  EXPECT_EQ(fp4_e1m2.encode(0.625F), 2);
  EXPECT_EQ(fp4_e1m2.encode(9.0F), 7);
}

TEST(FloatFormatsTest, LargestExponents) {
  EXPECT_EQ(fp8_e4m3fn.max_exponent(), 8);
  EXPECT_EQ(fp8_e5m2.max_exponent(), 15);
  EXPECT_EQ(fp6_e2m3.max_exponent(), 2);
  EXPECT_EQ(fp6_e3m2.max_exponent(), 4);
  EXPECT_EQ(fp4_e2m1.max_exponent(), 2);
  EXPECT_EQ(fp4_e1m2.max_exponent(), 0);
}

TEST(FloatFormatsTest, E8M0RoundsDownAndUpAsTheGoldenConversions) {
  const SafetensorsFile file = SafetensorsFile::open(data_path("formats/convert_e8m0.safetensors"));
  const auto inputs = values<float>(file, "input");
  const auto floors = values<std::uint8_t>(file, "code_floor"), ceils = values<std::uint8_t>(file, "code_ceil");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    ASSERT_EQ(e8m0_floor(inputs[i]), floors[i]) << inputs[i];
    ASSERT_EQ(e8m0_ceil(inputs[i]), ceils[i]) << inputs[i];
  }
  EXPECT_EQ(e8m0_to_f32(0), 0x1p-127F);
  EXPECT_EQ(e8m0_to_f32(254), 0x1p127F);
  EXPECT_TRUE(std::isnan(e8m0_to_f32(255)));
}

}  // namespace
}  // namespace moecl::test
