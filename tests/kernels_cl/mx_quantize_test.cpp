#include "tests/cases/mx_quantize.hpp"

#include <moecl/error.hpp>
#include <moecl/fp4.hpp>
#include <moecl/fp8.hpp>
#include <moecl/safetensors.hpp>

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "tests/host/files.hpp"
#include "tests/kernels_cl/operator_test.hpp"

namespace moecl::test {
namespace {

using mx_quantize::Rounding;
using mx_quantize::ScaleRule;

constexpr Minifloat formats[] = {fp8_e4m3fn, fp8_e5m2, fp4_e2m1, fp4_e1m2};
constexpr Rounding roundings[] = {Rounding::halves_to_even, Rounding::halves_away, Rounding::downward};

/// Numbers of every size. Half of them are ties of a format with `mantissa_bits`. Zeros of both signs are among them.
std::vector<double> mixed(std::size_t count, int mantissa_bits, std::mt19937_64& engine) {
  std::vector<double> x = normal(count, engine());
  for (double& value : x) {
    const auto choice = engine() % 8;
    if (choice == 0) value = std::copysign(0.0, value);
    if (choice == 1) value = std::ldexp(value, -static_cast<int>(engine() % 20));
    if (choice > 3) value = std::copysign(static_cast<double>(engine() % 256) / (4 << mantissa_bits), value);
  }
  return x;
}

class MxQuantizeTest : public OperatorTest<MxQuantizeCase> {
 protected:
  void check(const mx_quantize::Args& rules, DType dtype, std::int64_t length, std::int64_t inner,
             const std::vector<double>& x) const {
    SCOPED_TRACE(testing::Message() << "format of " << rules.format.exponent_bits << " + " << rules.format.mantissa_bits
                                    << " bits");
    OperatorTest::check({rules, dtype, length, inner, x});
  }
};
MOECL_ON_EVERY_DEVICE(MxQuantizeTest);

TEST_P(MxQuantizeTest, RandomShapesFormatsAndRules) {
  std::mt19937_64 engine(1);
  for (int i = 0; i < 200; ++i) {
    SCOPED_TRACE(i);
    mx_quantize::Args args;
    args.format = formats[engine() % 4];
    args.rounding = roundings[engine() % 3];
    args.scale_rule = engine() % 2 == 0 ? ScaleRule::floor_amax : ScaleRule::ceil_ratio;
    if (engine() % 4 == 0) args.least_amax = 0.75F;
    args.zeros_stay = engine() % 2 == 0;
    if (engine() % 4 == 0) args.least_scale = 126;
    std::int64_t length = static_cast<std::int64_t>(engine() % 140) + 1, inner = 1;
    if (engine() % 2 == 0) inner = static_cast<std::int64_t>(engine() % 40) + 1;
    if (args.format.bits() == 4) (inner == 1 ? length : inner) *= 2;
    const auto count = static_cast<std::size_t>(length * inner) * (engine() % 4);
    const DType dtypes[] = {DType::bf16, DType::f16, DType::f32};
    check(args, dtypes[engine() % 3], length, inner, mixed(count, args.format.mantissa_bits, engine));
    if (HasFatalFailure()) return;
  }
}

TEST_P(MxQuantizeTest, RowsOfManyBlocks) {
  std::mt19937_64 engine(2);
  for (const std::int64_t length : {2048, 2080, 4128}) {
    mx_quantize::Args args;
    args.format = fp8_e4m3fn;
    check(args, DType::bf16, length, 1, mixed(static_cast<std::size_t>(3 * length), 3, engine));
    args.format = fp4_e2m1;
    check(args, DType::bf16, length / 32, 66, mixed(static_cast<std::size_t>(length / 32 * 66), 1, engine));
  }
}

TEST_P(MxQuantizeTest, EveryMagnitudeThatF32Has) {
  // Subnormal and the largest numbers too, although a device's f32 arithmetic may treat them otherwise.
  std::mt19937_64 engine(3);
  std::vector<double> x;
  for (int exponent = -149; exponent < 128; ++exponent)
    for (const double value : mixed(32, 3, engine)) x.push_back(std::ldexp(std::fmod(value, 2.0), exponent));
  for (const Minifloat& format : formats)
    for (const Rounding rounding : roundings)
      for (const ScaleRule rule : {ScaleRule::floor_amax, ScaleRule::ceil_ratio}) {
        mx_quantize::Args args;
        args.format = format;
        args.rounding = rounding;
        args.scale_rule = rule;
        check(args, DType::f32, static_cast<std::int64_t>(x.size()), 1, x);
      }
}

TEST_P(MxQuantizeTest, ScalesAroundTheLargestNumberOfTheFormat) {
  std::vector<double> x;
  for (const double amax : {447.0, 448.0, 449.0, 511.0, 512.0, 57344.0, 57345.0}) {
    x.push_back(-amax);
    for (int i = 1; i < 32; ++i) x.push_back(amax * i / 32);
  }
  for (const Minifloat& format : {fp8_e4m3fn, fp8_e5m2})
    for (const ScaleRule rule : {ScaleRule::floor_amax, ScaleRule::ceil_ratio}) {
      mx_quantize::Args args;
      args.format = format;
      args.scale_rule = rule;
      check(args, DType::f32, static_cast<std::int64_t>(x.size()), 1, x);
    }
}

TEST_P(MxQuantizeTest, NaNAndInfinityMakeTheScaleNaN) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity(), -HUGE_VAL})
    for (const Minifloat& format : {fp8_e4m3fn, fp4_e2m1}) {
      std::vector<double> x = normal(96, 4);
      x[40] = bad;
      mx_quantize::Args args;
      args.format = format;
      check(args, DType::bf16, 96, 1, x);
    }
}

TEST_P(MxQuantizeTest, GathersRowsAndLeavesThoseOutOfRange) {
  MxQuantizeCase of{{}, DType::bf16, 40, 1, normal(4 * 40, 5), {3, 11, -1, 0, 12, 7, -2147483647 - 1, 2147483647}};
  of.rules.format = fp8_e5m2;
  of.rules.divisor = 3;
  OperatorTest::check(of);
}

TEST_P(MxQuantizeTest, RowsPastTheValidOnesAreNeitherReadNorWritten) {
  for (const ValidRows& rows : valid_rows()) {
    MxQuantizeCase of{{}, DType::bf16, 33, 1, normal(rows.valid.size() * 33, 6), {}, rows};
    of.rules.format = fp8_e4m3fn;
    OperatorTest::check(of);
  }
}

TEST_P(MxQuantizeTest, AgreesWithTheGoldenBlocks) {
  const SafetensorsFile file = SafetensorsFile::open(data_path("formats/mx_block32.safetensors"));
  const auto bytes = [&](const std::string& name) {
    const HostTensor tensor = file.tensor(name);
    std::vector<std::uint8_t> out(tensor.size_bytes);
    tensor.data.read(out.data(), out.size());
    return out;
  };
  const GuardedTensor x(device(), DType::f32, {9, 192, 1}, bytes("input")), scale(device(), DType::u8, {9, 3, 1, 2});
  const std::vector<std::pair<std::string, Minifloat>> kinds = {
      {"mxfp8_e4m3", fp8_e4m3fn}, {"mxfp8_e5m2", fp8_e5m2}, {"mxfp4_e2m1", fp4_e2m1}};
  for (const auto& [kind, format] : kinds) {
    SCOPED_TRACE(kind);
    const bool packed = format.bits() == 4;
    const GuardedTensor y(device(), DType::u8, {9, packed ? 96 : 192, 1});
    mx_quantize::Args args;
    args.format = format;
    args.x = x;
    args.y = y;
    args.scale = scale;
    mx_quantize::enqueue(device().stream, args);
    EXPECT_EQ(scale.read<std::uint8_t>(), bytes(kind + ".scale_e8m0"));
    EXPECT_EQ(y.read<std::uint8_t>(), bytes(kind + (packed ? ".packed" : ".code")));
  }
}

TEST_P(MxQuantizeTest, RejectsWrongShapes) {
  const GuardedTensor x(device(), DType::f32, {3, 33, 2}), y(device(), DType::u8, {3, 33, 2}),
      packed(device(), DType::u8, {3, 33, 1}), odd(device(), DType::f32, {3, 33, 1}),
      scale(device(), DType::u8, {3, 1, 2, 2});
  const auto reason = [&](const auto& change) {
    mx_quantize::Args args{x, fp8_e4m3fn, y, scale};
    change(args);
    return mx_quantize::reject(args, {}, device().record());
  };
  EXPECT_EQ(reason([](auto&) {}), "");
  EXPECT_EQ(reason([&](auto& args) { args.format = fp4_e2m1, args.y = packed; }), "");
  EXPECT_THAT(reason([&](auto& args) { args.format = fp4_e2m1; }),
              testing::HasSubstr("y: expected u8[3, 33, 1], got u8[3, 33, 2]"));
  EXPECT_THAT(reason([&](auto& args) { args.format = fp4_e2m1, args.x = odd; }),
              testing::HasSubstr("packed by two, but the last axis has 33 elements"));
  EXPECT_THAT(reason([&](auto& args) { args.format = {}; }), testing::HasSubstr("1 bits with 0 of mantissa"));
  EXPECT_THAT(reason([&](auto& args) { args.x = scale; }), testing::HasSubstr("expected float [N, L, I]"));
  EXPECT_THAT(reason([&](auto& args) { args.scale = y; }),
              testing::HasSubstr("expected u8[3, 1, 2, 2], got u8[3, 33, 2]"));
  EXPECT_THAT(reason([&](auto& args) { args.index = y; }), testing::HasSubstr("expected i32[R]"));
  EXPECT_THAT(reason([&](auto& args) { args.rows_per_expert = 3; }), testing::HasSubstr("3 needs row_ends"));
  EXPECT_THAT(reason([&](auto& args) { args.divisor = 0; }), testing::HasSubstr("0 is not positive"));
  EXPECT_THAT(reason([&](auto& args) { args.least_scale = 255; }), testing::HasSubstr("255 is outside [0, 254]"));
  EXPECT_THAT(reason([&](auto& args) { args.least_amax = std::nanf(""); }), testing::HasSubstr("not finite"));
  EXPECT_THROW(mx_quantize::enqueue(device().stream, {x, fp8_e4m3fn, scale, scale}), Error);
}

}  // namespace
}  // namespace moecl::test
