#include "tests/oracle/gated_activation.hpp"

#include <moecl/error.hpp>
#include <moecl/gated_activation.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "tests/devices.hpp"
#include "tests/oracle/edge_cases.hpp"
#include "tests/oracle/quantize_rows.hpp"

namespace moecl::test {
namespace {

constexpr ActivationFunction functions[] = {
    ActivationFunction::silu,  ActivationFunction::gelu, ActivationFunction::gelu_tanh, ActivationFunction::swigluoai,
    ActivationFunction::relu2, ActivationFunction::relu, ActivationFunction::fast_gelu};

std::vector<double> by_rows(const std::vector<double>& x, std::int64_t rows, const Activation& activation) {
  std::vector<double> out;
  const auto width = static_cast<std::ptrdiff_t>(x.size()) / rows;
  for (std::ptrdiff_t r = 0; r < rows; ++r) {
    const std::vector<double> row =
        oracle::gated_activation({x.begin() + r * width, x.begin() + (r + 1) * width}, activation);
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}

class GatedActivationTest : public OnEveryDevice {};
MOECL_ON_EVERY_DEVICE(GatedActivationTest);

TEST_P(GatedActivationTest, ComputesEveryFunctionInHalvesInterleavedAndPlain) {
  constexpr std::int64_t rows = 3, x_width = 66;
  std::vector<double> x = normal(rows * x_width, 1);
  for (double& value : x) value *= 4;  // beyond swigluoai's limit too
  const GuardedTensor device_x = upload(device(), DType::f32, {rows, x_width}, x);
  x = rounded(DType::f32, x);
  for (const auto function : functions) {
    for (const Activation& activation :
         {Activation{function, true, false}, Activation{function, true, true}, Activation{function, false, false}}) {
      if (function == ActivationFunction::swigluoai && !activation.gated) continue;
      if (function != ActivationFunction::silu && activation.interleaved) continue;  // loads know no function
      for (const std::int32_t lanes : lane_choices) {
        SCOPED_TRACE(testing::Message() << "function " << static_cast<int>(function) << ", gated " << activation.gated
                                        << ", interleaved " << activation.interleaved << ", lanes = " << lanes);
        const GuardedTensor out(device(), DType::f32, {rows, activation.gated ? x_width / 2 : x_width});
        gated_activation::enqueue(device().stream, {device_x, {}, 0, activation, out, {}}, {lanes});
        EXPECT_LE(relative_error(out.values(), by_rows(x, rows, activation)), 2e-6);
      }
    }
  }
}

TEST_P(GatedActivationTest, EveryStorageTypeAndWidth) {
  for (const DType from : {DType::f32, DType::f16, DType::bf16})
    for (const DType to : {DType::f32, from})
      for (const std::int64_t width : widths)
        for (const std::int64_t rows : row_counts) {
          if (from != DType::f32 && (rows > 1 || to == DType::f32) && width != 17) continue;  // f32 walks the shapes
          const std::vector<double> x = rounded(from, normal(static_cast<std::size_t>(rows * 2 * width), 2));
          const GuardedTensor device_x = upload(device(), from, {rows, 2 * width}, x);
          for (const std::int32_t lanes : lane_choices) {
            SCOPED_TRACE(testing::Message()
                         << name(from) << " to " << name(to) << "[" << rows << ", " << width << "], lanes = " << lanes);
            const GuardedTensor out(device(), to, {rows, width});
            gated_activation::enqueue(device().stream, {device_x, {}, 0, {}, out, {}}, {lanes});
            const double storage = to == DType::bf16 ? 4e-3 : to == DType::f16 ? 5e-4 : 0;
            EXPECT_LE(relative_error(out.values(), by_rows(x, std::max<std::int64_t>(rows, 1), {})), 2e-6 + storage);
          }
        }
}

TEST_P(GatedActivationTest, RowsPastTheValidOnesAreNeitherReadNorWritten) {
  for (const ValidRows& rows : valid_rows()) {
    const auto count = static_cast<std::int64_t>(rows.valid.size());
    std::vector<double> x = rounded(DType::f32, normal(rows.valid.size() * 34, 3)), expected = by_rows(x, count, {});
    for (std::size_t i = 0; i < x.size(); ++i)
      if (!rows.valid[i / 34]) x[i] = std::nan("");
    const GuardedTensor device_x = upload(device(), DType::f32, {count, 34}, x);
    const GuardedTensor row_ends(device(), DType::i32, {static_cast<std::int64_t>(rows.row_ends.size())},
                                 rows.row_ends);
    for (const std::int32_t lanes : lane_choices) {
      const GuardedTensor out(device(), DType::f32, {count, 17},
                              std::vector<float>(static_cast<std::size_t>(count * 17), 77.0F));
      gated_activation::enqueue(device().stream, {device_x, row_ends, rows.rows_per_expert, {}, out, {}}, {lanes});
      for (std::size_t i = 0; i < expected.size(); ++i)
        if (!rows.valid[i / 17]) expected[i] = 77;
      EXPECT_LE(relative_error(out.values(), expected), 1e-6) << count << " rows, " << rows.rows_per_expert << " each";
    }
  }
}

TEST_P(GatedActivationTest, QuantizesRowsInTheSameKernel) {
  constexpr std::int64_t rows = 5, width = 37;
  std::vector<double> x = rounded(DType::f32, normal(rows * 2 * width, 4));
  std::fill_n(x.begin() + 2 * 2 * width, 2 * width, 0.0);  // a row of zeros
  const GuardedTensor device_x = upload(device(), DType::f32, {rows, 2 * width}, x);
  const std::vector<double> y = by_rows(x, rows, {});
  for (const std::int32_t lanes : lane_choices) {
    SCOPED_TRACE(testing::Message() << "lanes = " << lanes);
    const GuardedTensor q(device(), DType::i8, {rows, width}), scale(device(), DType::f32, {rows});
    gated_activation::enqueue(device().stream, {device_x, {}, 0, {}, q, scale}, {lanes});
    const std::vector<double> scales = scale.values(), values = q.values();
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto expected =
          oracle::quantize_row({y.begin() + r * width, y.begin() + (r + 1) * width}, quantize_rows::Rounding::divide);
      EXPECT_NEAR(scales[static_cast<std::size_t>(r)], expected.scale, 2e-6 * expected.scale);
      // The activation's own error moves a quotient by less than 1e-3: only next to a tie may it round the other way.
      for (std::int64_t i = 0; i < width && expected.scale > 0; ++i)
        EXPECT_LE(std::abs(values[static_cast<std::size_t>(r * width + i)] -
                           y[static_cast<std::size_t>(r * width + i)] / expected.scale),
                  0.501);
    }
    EXPECT_EQ(scales[2], 0);
    EXPECT_TRUE(
        std::all_of(values.begin() + 2 * width, values.begin() + 3 * width, [](double value) { return value == 0; }));
  }
}

TEST_P(GatedActivationTest, SwigluoaiTakesItsConstantsAndEitherHalfAsGate) {
  constexpr std::int64_t rows = 3, width = 19;
  std::vector<double> x = rounded(DType::f32, normal(rows * 2 * width, 6));
  for (double& value : x) value *= 4;
  const GuardedTensor device_x = upload(device(), DType::f32, {rows, 2 * width}, x);
  for (const auto& [alpha, limit, bias] : {std::array{1.0F, 2.0F, 0.0F}, {1.0F, 0.0F, 0.0F}, {1.702F, 3.0F, 0.5F}})
    for (const bool interleaved : {false, true})
      for (const bool gate_is_right : {false, true})
        for (const std::int32_t lanes : lane_choices) {
          const Activation activation{
              ActivationFunction::swigluoai, true, interleaved, alpha, limit, bias, gate_is_right};
          const GuardedTensor out(device(), DType::f32, {rows, width});
          gated_activation::enqueue(device().stream, {device_x, {}, 0, activation, out, {}}, {lanes});
          EXPECT_LE(relative_error(out.values(), by_rows(x, rows, activation)), 2e-6)
              << "limit " << limit << ", interleaved " << interleaved << ", right " << gate_is_right;
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
      std::vector<double> expected = by_rows(y, 7, activation);
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

/// relu of positive rows is exact: what is left is the rounding of the codes.
TEST_P(GatedActivationTest, CodesFollowTheRoundingRuleAndQuantScale) {
  constexpr std::int64_t width = 40, experts = 3;
  const bool exact = device().caps().correctly_rounded_divide;
  std::vector<double> x = normal(4 * width, 11), scales = normal(experts * width, 12),
                      offsets = normal(experts * width, 13);
  for (double& value : x) value = std::abs(value);
  for (double& value : scales) value = 0.01 + std::abs(value) / 40;
  x[0] = 127, x[1] = 64.51, x[2] = 0.5;  // divided without scales, these round differently by rule
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
    const std::vector<double> x = rounded(DType::f32, normal(static_cast<std::size_t>(rows * 2 * width), engine()));
    const GuardedTensor device_x = upload(device(), DType::f32, {rows, 2 * width}, x),
                        out(device(), DType::f32, {rows, width});
    gated_activation::enqueue(device().stream, {device_x, {}, 0, activation, out, {}}, {lane_choices[engine() % 2]});
    EXPECT_LE(relative_error(out.values(), by_rows(x, rows, activation)), 2e-6) << rows << " x " << width;
  }
}

TEST_P(GatedActivationTest, RejectsWrongShapes) {
  const GuardedTensor x(device(), DType::f32, {3, 8}), odd(device(), DType::f32, {3, 7}),
      out(device(), DType::f32, {3, 4});
  const GuardedTensor q(device(), DType::i8, {3, 4}), scale(device(), DType::f32, {3});
  const auto reason = [&](const gated_activation::Args& args) {
    return gated_activation::reject(args, {}, device().caps());
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
