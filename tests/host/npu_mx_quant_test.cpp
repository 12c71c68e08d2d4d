#include <moecl/error.hpp>
#include <moecl/fp4.hpp>
#include <moecl/fp8.hpp>

#include <gmock/gmock.h>

#include "host/npu/describe_quant.hpp"
#include "tests/host/npu_property.hpp"
#include "tests/oracle/mx_quantize.hpp"

namespace moecl::test {
namespace {

using npu::MxType;
using npu::RoundMode;

struct Format {
  MxType type;
  Minifloat format;
};

const std::vector<Format> formats = {{MxType::float4_e2m1fn_x2, fp4_e2m1},
                                     {MxType::float4_e1m2fn_x2, fp4_e1m2},
                                     {MxType::float8_e4m3fn, fp8_e4m3fn},
                                     {MxType::float8_e5m2, fp8_e5m2}};
const std::vector<std::pair<RoundMode, mx_quantize::Rounding>> modes = {
    {RoundMode::rint, mx_quantize::Rounding::halves_to_even},
    {RoundMode::floor, mx_quantize::Rounding::downward},
    {RoundMode::round, mx_quantize::Rounding::halves_away}};

class NpuMxQuantTest : public OnEveryDevice {};
MOECL_ON_EVERY_DEVICE(NpuMxQuantTest);

TEST_P(NpuMxQuantTest, AgreesWithTheOracleAlongEveryAxis) {
  for (int i = 0; i < property_cases(device()); ++i) {
    std::mt19937_64 engine(static_cast<std::uint64_t>(i));
    const auto& [type, format] = one_of(engine, formats);
    const bool fp4 = format.bits() == 4;
    npu::DynamicMxQuantArgs args;
    mx_quantize::Args rules;
    args.dst_type = type;
    rules.format = format;
    if (fp4) {
      const auto& [mode, rounding] = one_of(engine, modes);
      args.round_mode = mode;
      rules.rounding = rounding;
    } else {
      args.scale_alg = between(engine, 0, 1);
      if (args.scale_alg == 1) rules.scale_rule = mx_quantize::ScaleRule::ceil_ratio;
    }

    // [before, length, after] are up to three dimensions; a dimension of 1 may be missing.
    std::int64_t before = between(engine, 0, 3), after = between(engine, 0, 1) * between(engine, 1, 9);
    std::int64_t length = between(engine, 1, 100);
    const bool last = after == 0;
    if (last) after = 1;
    if (fp4) (last ? length : after) *= 2;
    const DType dtype = one_of<DType>(engine, {DType::bf16, DType::f16});
    std::vector<double> x = normal(static_cast<std::size_t>(before * length * after), engine());
    for (std::size_t j = 0; j < x.size(); ++j) {
      // Ties of the format, numbers that saturate, and a column of zeros, all with both signs.
      if (between(engine, 0, 1) == 0) x[j] = std::copysign(static_cast<double>(between(engine, 0, 64)) / 16, x[j]);
      if (j % static_cast<std::size_t>(after) == 1) x[j] = std::copysign(0.0, x[j]);
    }
    x = rounded(dtype, x);
    const GuardedTensor device_x = upload(device(), dtype, {before, length, after}, x);
    args.x = device_x;
    args.axis = between(engine, 0, 1) == 0 ? 1 : -2;
    if (last) {
      args.x.rank = before == 1 ? 1 : 2;
      if (before == 1)
        args.x.shape = {length}, args.x.stride = {1};
      else
        args.x.shape = {before, length}, args.x.stride = {length, 1};
      args.axis = between(engine, 0, 1) == 0 ? args.x.rank - 1 : -1;
    } else if (before == 1) {
      args.x.rank = 2;
      args.x.shape = {length, after}, args.x.stride = {after, 1};
      args.axis -= args.axis > 0 ? 1 : 0;
    }

    const oracle::MxTensor expected = oracle::mx_quantize(x, length, after, rules);
    SCOPED_TRACE(testing::Message() << "case " << i << ", x " << args.x.describe() << ", axis " << args.axis
                                    << ", dst_type " << static_cast<int>(type) << ", round_mode "
                                    << static_cast<int>(args.round_mode) << ", scale_alg " << args.scale_alg);
    expect_outputs(
        device(), args,
        {{{expected.y.begin(), expected.y.end()}, {}}, {{expected.scale.begin(), expected.scale.end()}, {}}});
    if (HasFatalFailure()) return;
  }
}

TEST_P(NpuMxQuantTest, RefusesWhatCannotBeQuantized) {
  const GuardedTensor x(device(), DType::f16, {3, 9}), ints(device(), DType::i32, {3, 8}),
      deep(device(), DType::f16, {1, 1, 2, 4});
  const auto refusal = [&](const auto& change) {
    npu::DynamicMxQuantArgs args;
    args.x = x;
    args.dst_type = MxType::float8_e4m3fn;
    change(args);
    return refusal_of(args, device());
  };
  EXPECT_EQ(refusal([](auto&) {}), "");
  EXPECT_THAT(refusal([&](auto& args) { args.x = ints; }), testing::HasSubstr("got i32[3, 8]"));
  EXPECT_THAT(refusal([&](auto& args) { args.x = deep; }), testing::HasSubstr("more than three dimensions"));
  EXPECT_THAT(refusal([](auto& args) { args.axis = 2; }), testing::HasSubstr("2 is outside [-2, 2)"));
  EXPECT_THAT(refusal([](auto& args) { args.block_size = 64; }), testing::HasSubstr("64 is not supported, only 32"));
  EXPECT_THAT(refusal([](auto& args) { args.scale_alg = 2; }), testing::HasSubstr("2 is neither 0 nor 1"));
  EXPECT_THAT(refusal([](auto& args) { args.round_mode = RoundMode::floor; }), testing::HasSubstr("rint alone"));
  EXPECT_THAT(refusal([](auto& args) { args.round_mode = RoundMode::ceil; }), testing::HasSubstr("rint, floor or"));
  EXPECT_THAT(refusal([](auto& args) { args.dst_type = MxType::float4_e1m2fn_x2; }),
              testing::HasSubstr("packed by two, but the last dimension is 9"));
  EXPECT_THAT(refusal([](auto& args) { args.dst_type = MxType::float4_e2m1fn_x2, args.scale_alg = 1; }),
              testing::HasSubstr("1 is for fp8"));
}

}  // namespace
}  // namespace moecl::test
