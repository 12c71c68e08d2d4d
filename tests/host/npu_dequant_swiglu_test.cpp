#include <moecl/error.hpp>

#include <gmock/gmock.h>

#include "host/npu/describe_activation.hpp"
#include "tests/host/npu_property.hpp"
#include "tests/oracle/npu_activation.hpp"

namespace moecl::test {
namespace {

class NpuDequantSwigluTest : public OnEveryDevice {
 protected:
  /// The part that both forms of the operator share. The caller has set the modes in `args`; this sets random tensors
  /// and expects the outputs of `form`.
  template <class Args>
  void check(Args args, const oracle::SwigluForm& form, std::mt19937_64& engine) {
    const std::int64_t rows = between(engine, 0, 9), width = between(engine, 1, 24);
    const bool integers = between(engine, 0, 3) != 0, dynamic = args.quant_mode == 1;
    const std::int64_t groups = between(engine, 0, 1) * between(engine, 1, 4), sets = std::max<std::int64_t>(groups, 1);
    std::vector<double> counts;
    std::int64_t valid = 0;
    for (std::int64_t g = 0; g < groups; ++g)
      counts.push_back(static_cast<double>(between(engine, 0, rows - valid))), valid += static_cast<int>(counts.back());
    if (groups == 0) valid = rows;

    const auto random = [&](std::int64_t count, double size) {
      std::vector<double> values = normal(static_cast<std::size_t>(count), engine());
      for (double& value : values) value *= size;
      return values;
    };
    const DType x_dtype = integers ? DType::i32 : DType::bf16;
    std::vector<double> x = rounded(x_dtype, random(rows * 2 * width, integers ? 3000 : 3));
    // Gates of 0 and rows of zeros: a static code is then the offset itself, which may be a tie.
    for (double& value : x)
      if (between(engine, 0, 5) == 0) value = 0;
    if (rows > 1) std::fill_n(x.begin(), 2 * width, 0.0);
    std::vector<double> poisoned = x;
    for (std::int64_t i = valid * 2 * width; i < rows * 2 * width; ++i)
      poisoned[static_cast<std::size_t>(i)] = integers ? 0x5a5a5a5a : std::nan("");
    const GuardedTensor device_x = upload(device(), x_dtype, {rows, 2 * width}, poisoned);
    args.x = device_x;

    const std::vector<double> weight_scale = rounded(DType::f32, random(sets * 2 * width, 1e-3)),
                              activation_scale = rounded(DType::f32, random(rows, 1));
    const GuardedTensor device_weight_scale = upload(device(), DType::f32, {sets, 2 * width}, weight_scale),
                        device_activation_scale = upload(device(), DType::f32, {rows, 1}, activation_scale);
    const bool row_scaled = integers && between(engine, 0, 1) == 1;
    if (integers) args.weight_scale = device_weight_scale;
    if (row_scaled) args.activation_scale = device_activation_scale;

    const DType bias_dtype = one_of<DType>(engine, {DType::i32, DType::f32});
    const bool biased = integers && between(engine, 0, 1) == 1;
    const std::vector<double> bias = rounded(bias_dtype, random(2 * width, bias_dtype == DType::i32 ? 1000 : 1));
    const GuardedTensor device_bias = upload(device(), bias_dtype, {1, 2 * width}, bias);
    if (biased) args.bias = device_bias;

    const GuardedTensor group_index = upload(device(), DType::i64, {groups}, counts);
    if (groups != 0) args.group_index = group_index;

    const bool smooth = !dynamic || between(engine, 0, 1) == 1, one = !dynamic && between(engine, 0, 3) == 0;
    std::vector<double> quant_scale = random(one ? 1 : sets * width, 0.1), quant_offset;
    for (double& value : quant_scale) value = 0.05 + std::abs(value);
    quant_scale = rounded(DType::f32, quant_scale);
    for (std::size_t i = 0; i < quant_scale.size(); ++i)
      quant_offset.push_back(static_cast<double>(between(engine, -12, 12)) / 2);
    const std::initializer_list<std::int64_t> one_shape = {1}, all_shape = {sets, width};
    const GuardedTensor device_quant_scale = upload(device(), DType::f32, one ? one_shape : all_shape, quant_scale),
                        device_quant_offset = upload(device(), DType::f32, one ? one_shape : all_shape, quant_offset);
    if (smooth) args.quant_scale = device_quant_scale;
    if (!dynamic) args.quant_offset = device_quant_offset;

    Expected y{std::vector<double>(static_cast<std::size_t>(rows * width)), {}, 0.502, 0};
    Expected scale{std::vector<double>(static_cast<std::size_t>(rows)), {}, 0, 4e-6};
    std::int64_t group = 0, group_end = groups == 0 ? rows : static_cast<std::int64_t>(counts[0]);
    for (std::int64_t r = 0; r < rows; ++r) {
      scale.defined.push_back(r < valid);
      y.defined.insert(y.defined.end(), static_cast<std::size_t>(width), r < valid);
      if (r >= valid) continue;
      while (r >= group_end) group_end += static_cast<std::int64_t>(counts[static_cast<std::size_t>(++group)]);
      std::vector<double> row(x.begin() + r * 2 * width, x.begin() + (r + 1) * 2 * width);
      for (std::size_t i = 0; integers && i < row.size(); ++i) {
        if (biased && groups == 0 && bias_dtype == DType::i32) row[i] += bias[i];
        row[i] *= weight_scale[static_cast<std::size_t>(group * 2 * width) + i];
        if (row_scaled) row[i] *= activation_scale[static_cast<std::size_t>(r)];
        if (biased && groups == 0 && bias_dtype != DType::i32) row[i] += bias[i];
      }
      const std::vector<double> v = oracle::dequantized_swiglu(row, form);
      const auto quant_at = [&](const std::vector<double>& values, std::size_t i) {
        return values[one ? 0 : static_cast<std::size_t>(group * width) + i];
      };
      std::vector<double> scaled = v;
      double amax = 0;
      for (std::size_t i = 0; i < v.size(); ++i) {
        if (dynamic && smooth) scaled[i] *= quant_at(quant_scale, i);
        amax = std::max(amax, std::abs(scaled[i]));
      }
      scale.values[static_cast<std::size_t>(r)] = amax / 127;
      for (std::size_t i = 0; i < v.size(); ++i) {
        double& code = y.values[static_cast<std::size_t>(r * width) + i];
        if (dynamic)
          code = amax == 0 ? 0 : oracle::code_or_tie(scaled[i] / (amax / 127), -127, false);
        else
          code = oracle::code_or_tie(v[i] / quant_at(quant_scale, i) + quant_at(quant_offset, i), -128, v[i] == 0);
      }
    }
    expect_outputs(device(), args, dynamic ? std::vector<Expected>{y, scale} : std::vector<Expected>{y, {}});
  }
};
MOECL_ON_EVERY_DEVICE(NpuDequantSwigluTest);

TEST_P(NpuDequantSwigluTest, AgreesWithTheOracle) {
  for (int i = 0; i < property_cases(device()); ++i) {
    SCOPED_TRACE(testing::Message() << "case " << i);
    std::mt19937_64 engine(static_cast<std::uint64_t>(i));
    npu::DequantSwigluQuantArgs args;
    args.activate_left = between(engine, 0, 1) == 1;
    args.quant_mode = between(engine, 0, 1);
    args.swiglu_mode = between(engine, 0, 2);
    args.clamp_limit = one_of<double>(engine, {7, 1.5});
    args.glu_bias = one_of<double>(engine, {1, 0.25});
    check(args,
          {args.swiglu_mode != 0, args.swiglu_mode == 1, args.swiglu_mode == 0 && !args.activate_left, args.clamp_limit,
           args.glu_alpha, args.glu_bias},
          engine);
    if (HasFatalFailure()) return;
  }
}

TEST_P(NpuDequantSwigluTest, VllmAscendsFormAgreesWithTheOracle) {
  for (int i = 0; i < property_cases(device()); ++i) {
    SCOPED_TRACE(testing::Message() << "case " << i);
    std::mt19937_64 engine(static_cast<std::uint64_t>(i + 1000));
    npu::CAscendDequantSwigluQuantArgs args;
    args.activate_left = between(engine, 0, 1) == 1;
    args.quant_mode = between(engine, 0, 1);
    args.swiglu_mode = between(engine, 0, 1);
    args.clamp_limit = one_of<double>(engine, {0, 1.5, -1});
    args.glu_alpha = one_of<double>(engine, {1, 1.702});
    args.glu_bias = one_of<double>(engine, {0, 1});
    check(args, {args.swiglu_mode == 1, false, !args.activate_left, args.clamp_limit, args.glu_alpha, args.glu_bias},
          engine);
    if (HasFatalFailure()) return;
  }
}

TEST_P(NpuDequantSwigluTest, RefusesWhatTheOperatorDoes) {
  const GuardedTensor floats(device(), DType::f16, {2, 8}), ints(device(), DType::i32, {2, 8}),
      odd(device(), DType::i32, {2, 7}), scales(device(), DType::f32, {8}), one_scale(device(), DType::f32, {1});
  const auto refusal = [&](const auto& change) {
    npu::DequantSwigluQuantArgs args;
    args.x = ints;
    args.weight_scale = scales;
    args.quant_mode = 1;
    change(args);
    return refusal_of(args, device());
  };
  EXPECT_EQ(refusal([](auto&) {}), "");
  EXPECT_THAT(refusal([&](auto& args) { args.x = odd; }), testing::HasSubstr("i32[2, 7] cannot be halved"));
  EXPECT_THAT(refusal([&](auto& args) { args.weight_scale = {}; }), testing::HasSubstr("i32 rows need it"));
  EXPECT_THAT(refusal([&](auto& args) { args.x = floats; }), testing::HasSubstr("f16 rows are dequantized already"));
  EXPECT_THAT(refusal([&](auto& args) { args.quant_mode = 0; }), testing::HasSubstr("quant_mode 0 needs it"));
  EXPECT_THAT(refusal([&](auto& args) { args.quant_mode = 2; }), testing::HasSubstr("2 is neither 0 nor 1"));
  EXPECT_THAT(refusal([&](auto& args) { args.quant_offset = one_scale; }), testing::HasSubstr("quant_offset: only"));
  EXPECT_THAT(refusal([&](auto& args) { args.swiglu_mode = 3; }), testing::HasSubstr("3 is not in [0, 2]"));
  EXPECT_THAT(refusal([&](auto& args) { args.clamp_limit = 0; }), testing::HasSubstr("0 is not above 0"));
  EXPECT_THAT(refusal([&](auto& args) { args.round_mode = npu::RoundMode::floor; }), testing::HasSubstr("only rint"));
  EXPECT_THAT(refusal([&](auto& args) { args.activate_dim = 0; }), testing::HasSubstr("0 is not the last"));
  EXPECT_THAT(refusal([&](auto& args) { args.weight_scale = one_scale; }),
              testing::HasSubstr("expected [8] or [0, 8] for the experts of row_ends, got f32[1]"));
}

}  // namespace
}  // namespace moecl::test
