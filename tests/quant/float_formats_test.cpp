#include <moecl/bf16.hpp>
#include <moecl/f16.hpp>
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
  std::memcpy(out.data(), tensor.data, tensor.size_bytes);
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

}  // namespace
}  // namespace moecl::test
