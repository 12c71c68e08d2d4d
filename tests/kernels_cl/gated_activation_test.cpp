#include "tests/oracle/gated_activation.hpp"

#include <moecl/error.hpp>
#include <moecl/gated_activation.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/devices.hpp"
#include "tests/oracle/quantize_rows.hpp"
#include "tests/oracle/edge_cases.hpp"

namespace moecl::test {
namespace {

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
  for (const auto function : {ActivationFunction::silu, ActivationFunction::gelu, ActivationFunction::gelu_tanh,
                              ActivationFunction::swigluoai, ActivationFunction::relu2}) {
    for (const Activation& activation :
         {Activation{function, true, false}, Activation{function, true, true}, Activation{function, false, false}}) {
      if (function == ActivationFunction::swigluoai && !activation.gated) continue;
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

TEST_P(GatedActivationTest, NaNStaysNaN) {
  for (const auto function : {ActivationFunction::silu, ActivationFunction::gelu, ActivationFunction::gelu_tanh,
                              ActivationFunction::swigluoai, ActivationFunction::relu2}) {
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
    const Activation activation{static_cast<ActivationFunction>(engine() % 5), true, engine() % 2 == 0};
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
  EXPECT_THROW(gated_activation::enqueue(device().stream, {odd, {}, 0, {}, out, {}}), Error);
}

}  // namespace
}  // namespace moecl::test
