#include "tests/cases/gated_activation.hpp"

#include <moecl/error.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "tests/kernels_cl/operator_test.hpp"
#include "tests/oracle/gated_activation.hpp"
#include "tests/oracle/quantize_rows.hpp"

namespace moecl::test {
namespace {

constexpr ActivationFunction functions[] = {
    ActivationFunction::silu,  ActivationFunction::gelu, ActivationFunction::gelu_tanh, ActivationFunction::swigluoai,
    ActivationFunction::relu2, ActivationFunction::relu, ActivationFunction::fast_gelu};

class GatedActivationTest : public OperatorTest<GatedActivationCase> {};
MOECL_ON_EVERY_DEVICE(GatedActivationTest);

/// Normal numbers, some of which exceed the limit of swigluoai.
std::vector<double> wide_normal(std::size_t count, std::uint64_t seed) {
  std::vector<double> x = normal(count, seed);
  for (double& value : x) value *= 4;
  return x;
}

TEST_P(GatedActivationTest, ComputesEveryFunctionInHalvesInterleavedAndPlain) {
  constexpr std::int64_t rows = 3, x_width = 66;
  const std::vector<double> x = wide_normal(rows * x_width, 1);
  std::size_t number = 0;
  for (const auto function : functions) {
    for (const Activation& activation :
         {Activation{function, true, false}, Activation{function, true, true}, Activation{function, false, false}}) {
      if (function == ActivationFunction::swigluoai && !activation.gated) continue;
      if (function != ActivationFunction::silu && activation.interleaved) continue;  // loads are the same
      if (!takes(number++)) continue;
      SCOPED_TRACE(testing::Message() << name(function) << ", gated " << activation.gated << ", interleaved "
                                      << activation.interleaved);
      check({activation.gated ? x_width / 2 : x_width, x, activation});
    }
  }
}

TEST_P(GatedActivationTest, EveryStorageTypeAndWidth) {
  for (const DType from : {DType::f32, DType::f16, DType::bf16})
    for (const DType to : {DType::f32, from})
      for (const std::int64_t width : widths)
        for (const std::int64_t rows : row_counts) {
          if (from != DType::f32 && (rows > 1 || to == DType::f32) && width != 17) continue;  // f32 covers the shapes
          check({width, normal(static_cast<std::size_t>(rows * 2 * width), 2), {}, from, to});
        }
}

TEST_P(GatedActivationTest, RowsPastTheValidOnesAreNeitherReadNorWritten) {
  for (const ValidRows& rows : valid_rows()) {
    std::vector<double> x = normal(rows.valid.size() * 34, 3);
    for (std::size_t i = 0; i < x.size(); ++i)
      if (!rows.valid[i / 34]) x[i] = std::nan("");
    check({17, x, {}, DType::f32, DType::f32, rows, 1e-6});
  }
}

TEST_P(GatedActivationTest, QuantizesRowsInTheSameKernel) {
  constexpr std::int64_t rows = 5, width = 37;
  std::vector<double> x = normal(rows * 2 * width, 4);
  std::fill_n(x.begin() + 2 * 2 * width, 2 * width, 0.0);  // a row of zeros
  check({width, x, {}, DType::f32, DType::i8});
}

TEST_P(GatedActivationTest, SwigluoaiTakesItsConstantsAndEitherHalfAsGate) {
  constexpr std::int64_t rows = 3, width = 19;
  const std::vector<double> x = wide_normal(rows * 2 * width, 6);
  for (const auto& [alpha, limit, bias] : {std::array{1.0F, 2.0F, 0.0F}, {1.0F, 0.0F, 0.0F}, {1.702F, 3.0F, 0.5F}})
    for (const bool interleaved : {false, true})
      for (const bool gate_is_right : {false, true}) {
        SCOPED_TRACE(testing::Message() << "limit " << limit << ", interleaved " << interleaved << ", right "
                                        << gate_is_right);
        check({width, x, {ActivationFunction::swigluoai, true, interleaved, alpha, limit, bias, gate_is_right}});
      }
}

TEST_P(GatedActivationTest, DequantizesRowsByExpertColumnAndRow) {
  constexpr std::int64_t width = 21, experts = 3;
  const ValidRows rows{{4, 4, 7}, 0, std::vector<bool>(9)};
  std::vector<double> x = rounded(DType::i32, [] {
    std::vector<double> values = normal(9 * 2 * width, 7);
    for (double& value : values) value *= 3e7;  // more digits than an f32 has
    return values;
  }());
  const std::vector<double> columns = rounded(DType::f32, normal(experts * 2 * width, 8)),
                            row_scales = rounded(DType::f32, normal(9, 9)), biases = normal(2 * width, 10);
  const GuardedTensor row_ends(device(), DType::i32, {experts}, rows.row_ends),
      device_x = upload(device(), DType::i32, {9, 2 * width}, x),
      column_scale = upload(device(), DType::f32, {experts, 2 * width}, columns),
      row_scale = upload(device(), DType::f32, {9}, row_scales);
  for (const DType bias_dtype : {DType::i32, DType::bf16}) {
    std::vector<double> bias = biases;
    for (double& value : bias) value *= bias_dtype == DType::i32 ? 3e7 : 1e6;
    const GuardedTensor device_bias = upload(device(), bias_dtype, {1, 2 * width}, bias);
    bias = rounded(bias_dtype, bias);
    std::vector<double> y;
    for (std::size_t i = 0; i < 7 * 2 * width; ++i) {
      const std::size_t row = i / (2 * width), column = i % (2 * width), expert = row < 4 ? 0 : 2;
      const double scale = columns[expert * 2 * width + column] * row_scales[row];
      y.push_back(bias_dtype == DType::i32 ? (x[i] + bias[column]) * scale : x[i] * scale + bias[column]);
    }
    for (const bool interleaved : {false, true}) {
      if (interleaved && bias_dtype == DType::bf16) continue;
      const Activation activation{ActivationFunction::relu, true, interleaved};
      std::vector<double> expected = oracle::gated_rows(y, 2 * width, activation);
      expected.resize(9 * width, 77);
      for (const std::int32_t lanes : lane_choices) {
        const GuardedTensor out(device(), DType::f32, {9, width}, std::vector<float>(9 * width, 77.0F));
        gated_activation::Args args{device_x, row_ends, 0, activation, out, {}};
        args.column_scale = column_scale;
        args.row_scale = row_scale;
        args.bias = device_bias;
        gated_activation::enqueue(device().stream, args, {lanes});
        EXPECT_LE(relative_error(out.values(), expected), 1e-6)
            << name(bias_dtype) << " bias, interleaved " << interleaved << ", lanes = " << lanes;
      }
    }
  }
}

/// relu of positive rows is exact, so only the codes are rounded.
TEST_P(GatedActivationTest, CodesFollowTheRoundingRuleAndQuantScale) {
  constexpr std::int64_t width = 40, experts = 3;
  const bool exact = device().caps().correctly_rounded_divide;
  std::vector<double> x = normal(4 * width, 11), scales = normal(experts * width, 12),
                      offsets = normal(experts * width, 13);
  for (double& value : x) value = std::abs(value);
  for (double& value : scales) value = 0.01 + std::abs(value) / 40;
  x[0] = 127, x[1] = 64.51, x[2] = 0.5;  // without scales, each rounding rule gives other codes
  x = rounded(DType::f32, x), scales = rounded(DType::f32, scales), offsets = rounded(DType::f32, offsets);
  const GuardedTensor row_ends(device(), DType::i32, {experts}, std::vector<std::int32_t>{1, 1, 4}),
      device_x = upload(device(), DType::f32, {4, width}, x),
      quant_scale = upload(device(), DType::f32, {experts, width}, scales),
      quant_offset = upload(device(), DType::f32, {experts, width}, offsets),
      one_scale = upload(device(), DType::f32, {1}, {scales[0]}),
      one_offset = upload(device(), DType::f32, {1}, {offsets[0]});
  const Activation relu{ActivationFunction::relu, false};
  const auto check_row = [&](const GuardedTensor& q, std::size_t row, const std::vector<std::int8_t>& expected) {
    const std::vector<std::int8_t> all = q.read<std::int8_t>();
    for (std::size_t i = 0; i < width; ++i)
      ASSERT_NEAR(all[row * width + i], expected[i], exact ? 0 : 1) << "row " << row << ", column " << i;
  };
  for (const std::int32_t lanes : lane_choices) {
    const GuardedTensor q(device(), DType::i8, {4, width}), scale(device(), DType::f32, {4});
    for (const auto rounding :
         {quantize_rows::Rounding::divide, quantize_rows::Rounding::divide_scaled,
          quantize_rows::Rounding::multiply_127_by_amax, quantize_rows::Rounding::multiply_reciprocal_f16})
      for (const bool smooth : {false, true}) {
        SCOPED_TRACE(testing::Message() << "rounding " << static_cast<int>(rounding) << ", lanes = " << lanes);
        gated_activation::Args args{device_x, row_ends, 0, relu, q, scale};
        args.rounding = rounding;
        if (smooth) args.quant_scale = quant_scale;
        gated_activation::enqueue(device().stream, args, {lanes});
        const std::vector<float> row_scales = scale.read<float>();
        for (std::size_t row = 0; row < 4; ++row) {
          std::vector<double> y(x.begin() + static_cast<std::ptrdiff_t>(row * width),
                                x.begin() + static_cast<std::ptrdiff_t>((row + 1) * width));
          for (std::size_t i = 0; smooth && i < width; ++i)
            y[i] = static_cast<float>(y[i]) * static_cast<float>(scales[(row == 0 ? 0 : 2) * width + i]);
          const oracle::QuantizedRow expected = oracle::quantize_row(y, rounding);
          EXPECT_NEAR(row_scales[row], expected.scale, exact ? 0 : 3e-7F * expected.scale);
          check_row(q, row, expected.q);
        }
      }
    for (const bool one : {false, true}) {
      SCOPED_TRACE(testing::Message() << "static, one " << one << ", lanes = " << lanes);
      gated_activation::Args args{device_x, row_ends, 0, relu, q, {}};
      args.quant_scale = one ? one_scale.view() : quant_scale.view();
      args.quant_offset = one ? one_offset.view() : quant_offset.view();
      gated_activation::enqueue(device().stream, args, {lanes});
      for (std::size_t row = 0; row < 4; ++row) {
        std::vector<std::int8_t> expected;
        for (std::size_t i = 0; i < width; ++i) {
          const std::size_t at = one ? 0 : (row == 0 ? 0 : 2) * width + i;
          const auto y = static_cast<float>(x[row * width + i]), given = static_cast<float>(scales[at]);
          const float code = (one ? y * (1.0F / given) : y / given) + static_cast<float>(offsets[at]);
          expected.push_back(static_cast<std::int8_t>(std::clamp(std::nearbyint(code), -128.0F, 127.0F)));
        }
        check_row(q, row, expected);
      }
    }
  }
}

TEST_P(GatedActivationTest, NaNStaysNaN) {
  for (const auto function : functions) {
    const GuardedTensor x = upload(device(), DType::f32, {1, 4}, {std::nan(""), 1, 1, std::nan("")}),
                        out(device(), DType::f32, {1, 2});
    gated_activation::enqueue(device().stream, {x, {}, 0, {function}, out, {}});
    for (const double value : out.values()) EXPECT_TRUE(std::isnan(value)) << "function " << static_cast<int>(function);
  }
}

TEST_P(GatedActivationTest, RandomShapes) {
  std::mt19937_64 engine(5);
  for (int i = 0; i < 24; ++i) {
    const auto rows = static_cast<std::int64_t>(engine() % 9 + 1),
               width = static_cast<std::int64_t>(engine() % 150 + 1);
    const Activation activation{ActivationFunction::silu, true, engine() % 2 == 0};
    check({width, normal(static_cast<std::size_t>(rows * 2 * width), engine()), activation},
          {lane_choices[engine() % 2]});
  }
}

TEST_P(GatedActivationTest, RejectsWrongShapes) {
  const GuardedTensor x(device(), DType::f32, {3, 8}), odd(device(), DType::f32, {3, 7}),
      out(device(), DType::f32, {3, 4});
  const GuardedTensor q(device(), DType::i8, {3, 4}), scale(device(), DType::f32, {3});
  const auto reason = [&](const gated_activation::Args& args) {
    return gated_activation::reject(args, {}, device().record());
  };
  EXPECT_EQ(reason({x, {}, 0, {}, out, {}}), "");
  EXPECT_EQ(reason({x, {}, 0, {}, q, scale}), "");
  EXPECT_THAT(reason({odd, {}, 0, {}, out, {}}), testing::HasSubstr("it is odd: f32[3, 7]"));
  EXPECT_THAT(reason({x, {}, 0, {}, x, {}}), testing::HasSubstr("expected float [3, 4], got f32[3, 8]"));
  EXPECT_THAT(reason({x, {}, 0, {}, q, {}}), testing::HasSubstr("expected float [3, 4], got i8[3, 4]"));
  EXPECT_THAT(reason({x, {}, 0, {}, out, scale}), testing::HasSubstr("expected i8 [3, 4], got f32[3, 4]"));
  EXPECT_THAT(reason({x, {}, 0, {ActivationFunction::swigluoai, false}, x, {}}), testing::HasSubstr("always gated"));
  EXPECT_THAT(reason({x, {}, 0, {ActivationFunction::silu, false, true}, x, {}}), testing::HasSubstr("interleave"));
  const GuardedTensor integers(device(), DType::i32, {3, 8});
  const auto reason_with = [&](const auto& change) {
    gated_activation::Args args{x, {}, 0, {}, out, {}};
    change(args);
    return reason(args);
  };
  EXPECT_THAT(reason_with([&](auto& args) { args.column_scale = out; }),
              testing::HasSubstr("column_scale: expected [8] or [0, 8] for the experts of row_ends, got f32[3, 4]"));
  EXPECT_THAT(reason_with([&](auto& args) { args.row_scale = out; }), testing::HasSubstr("row_scale: expected f32[3]"));
  EXPECT_THAT(reason_with([&](auto& args) { args.bias = integers.view().rows(0, 1); }),
              testing::HasSubstr("i32 beside i32 rows, got i32[1, 8] beside f32"));
  EXPECT_THAT(reason_with([&](auto& args) { args.quant_scale = out.view().rows(0, 1); }),
              testing::HasSubstr("out: expected i8 [3, 4], got f32[3, 4]"));
  EXPECT_THAT(reason_with([&](auto& args) { args.quant_offset = out.view().rows(0, 1); }),
              testing::HasSubstr("quant_offset: only codes of a given quant_scale"));
  EXPECT_THROW(gated_activation::enqueue(device().stream, {odd, {}, 0, {}, out, {}}), Error);
}

}  // namespace
}  // namespace moecl::test
