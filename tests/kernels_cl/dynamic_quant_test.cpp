#include "tests/oracle/dynamic_quant.hpp"

#include <moecl/dynamic_quant.hpp>
#include <moecl/error.hpp>
#include <moecl/safetensors.hpp>

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <random>

#include "tests/devices.hpp"
#include "tests/host/files.hpp"
#include "tests/oracle/edge_cases.hpp"

namespace moecl::test {
namespace {

using dynamic_quant::Rounding;

constexpr Rounding roundings[] = {Rounding::divide, Rounding::divide_scaled, Rounding::multiply_reciprocal,
                                  Rounding::multiply_127_by_amax};

class DynamicQuantTest : public OnEveryDevice {
 protected:
  /// Quantizes [N, H] values with 1 and with 64 lanes and compares every bit of the valid rows with the oracle.
  void check(DType dtype, const std::vector<double>& values, std::int64_t hidden, Rounding rounding,
             const ValidRows* rows = nullptr) {
    const auto count = static_cast<std::int64_t>(values.size()) / hidden;
    const std::vector<double> stored = rounded(dtype, values);
    const GuardedTensor x = upload(device(), dtype, {count, hidden}, values);
    const GuardedTensor row_ends(device(), DType::i32, {rows ? static_cast<std::int64_t>(rows->row_ends.size()) : 0},
                                 rows ? rows->row_ends : std::vector<std::int32_t>());
    for (const std::int32_t lanes : lane_choices) {
      SCOPED_TRACE(testing::Message() << name(dtype) << "[" << count << ", " << hidden << "], rounding "
                                      << static_cast<int>(rounding) << ", lanes = " << lanes);
      const GuardedTensor q(device(), DType::i8, {count, hidden}, std::vector<std::int8_t>(values.size(), 77));
      const GuardedTensor scale(device(), DType::f32, {count},
                                std::vector<float>(static_cast<std::size_t>(count), 77.0F));
      dynamic_quant::enqueue(
          device().stream,
          {x, rows ? row_ends.view() : TensorView(), rows ? rows->rows_per_expert : 0, q, scale, rounding}, {lanes});
      const auto all_q = q.read<std::int8_t>();
      const auto all_scales = scale.read<float>();
      for (std::int64_t r = 0; r < count; ++r) {
        oracle::QuantizedRow expected{77.0F, std::vector<std::int8_t>(static_cast<std::size_t>(hidden), 77)};
        if (rows == nullptr || rows->valid[static_cast<std::size_t>(r)])
          expected = oracle::dynamic_quant({stored.begin() + r * hidden, stored.begin() + (r + 1) * hidden}, rounding);
        const std::vector<std::int8_t> row(all_q.begin() + r * hidden, all_q.begin() + (r + 1) * hidden);
        if (device().caps().correctly_rounded_divide) {
          ASSERT_EQ(all_scales[static_cast<std::size_t>(r)], expected.scale) << "row " << r;
          ASSERT_EQ(row, expected.q) << "row " << r;
        } else {
          ASSERT_NEAR(all_scales[static_cast<std::size_t>(r)], expected.scale, 3e-7F * expected.scale) << "row " << r;
          for (std::size_t h = 0; h < row.size(); ++h)
            ASSERT_LE(std::abs(row[h] - expected.q[h]), 1) << "row " << r << ", column " << h;
        }
      }
    }
  }
};
MOECL_ON_EVERY_DEVICE(DynamicQuantTest);

TEST_P(DynamicQuantTest, EveryRoundingOrderIsExact) {
  for (const Rounding rounding : roundings) check(DType::f32, normal(200 * 33, 1), 33, rounding);
}

TEST_P(DynamicQuantTest, TiesGoToEven) {
  // amax = 127: the scale is 1 and halves stay halves.
  std::vector<double> row = {127};
  for (double tie = -126.5; tie < 127; tie += 1) row.push_back(tie);
  check(DType::f32, row, static_cast<std::int64_t>(row.size()), Rounding::divide);
}

TEST_P(DynamicQuantTest, EveryStorageTypeAndWidth) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const std::int64_t width : widths)
      for (const std::int64_t rows : row_counts)
        check(dtype, normal(static_cast<std::size_t>(rows * width), 2), width, Rounding::divide);
}

TEST_P(DynamicQuantTest, RowsPastTheValidOnesAreNeitherReadNorWritten) {
  for (const ValidRows& rows : valid_rows()) {
    std::vector<double> values = normal(rows.valid.size() * 33, 3);
    for (std::size_t i = 0; i < values.size(); ++i)
      if (!rows.valid[i / 33]) values[i] = std::nan("");
    check(DType::f32, values, 33, Rounding::divide, &rows);
  }
}

TEST_P(DynamicQuantTest, ZerosHugeAndTinyRows) {
  for (const double amax : {0.0, 1e-45, 1.4e-36, 1.5e-36, 3e-36, 3e38}) {
    std::vector<double> row = normal(40, 4);
    for (double& value : row) value = std::clamp(value, -1.0, 1.0) * amax;
    row[7] = -amax;
    for (const Rounding rounding : roundings) check(DType::f32, row, 40, rounding);
  }
}

TEST_P(DynamicQuantTest, AgreesWithTheGoldenRows) {
  const SafetensorsFile file = SafetensorsFile::open(data_path("formats/int8_per_token_per_channel.safetensors"));
  const HostTensor input = file.tensor("weight"), golden_q = file.tensor("weight_q"),
                   golden_scale = file.tensor("weight_scale");
  const std::int64_t rows = input.shape[0], width = input.shape[1];
  std::vector<float> values(static_cast<std::size_t>(rows * width)), scales(static_cast<std::size_t>(rows));
  std::vector<std::int8_t> codes(values.size());
  std::memcpy(values.data(), input.data, input.size_bytes);
  std::memcpy(scales.data(), golden_scale.data, golden_scale.size_bytes);
  std::memcpy(codes.data(), golden_q.data, golden_q.size_bytes);
  const GuardedTensor x(device(), DType::f32, {rows, width}, values), q(device(), DType::i8, {rows, width}),
      scale(device(), DType::f32, {rows});
  dynamic_quant::enqueue(device().stream, {x, {}, 0, q, scale});
  const bool exact = device().caps().correctly_rounded_divide;
  const auto device_scales = scale.read<float>();
  const auto device_codes = q.read<std::int8_t>();
  for (std::size_t r = 0; r < scales.size(); ++r)
    ASSERT_NEAR(device_scales[r], scales[r], exact ? 0 : 3e-7F * scales[r]) << "row " << r;
  for (std::size_t i = 0; i < codes.size(); ++i)
    ASSERT_NEAR(device_codes[i], codes[i], exact ? 0 : 1) << "element " << i;
}

TEST_P(DynamicQuantTest, NaNAndInfinityShowInTheScale) {
  for (const double bad :
       {std::nan(""), std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()}) {
    std::vector<double> values = normal(40, 5);
    values[21] = bad;
    const GuardedTensor x = upload(device(), DType::f32, {1, 40}, values), q(device(), DType::i8, {1, 40}),
                        scale(device(), DType::f32, {1});
    dynamic_quant::enqueue(device().stream, {x, {}, 0, q, scale});
    EXPECT_FALSE(std::isfinite(scale.values()[0])) << bad;
    q.check_guards();
  }
}

TEST_P(DynamicQuantTest, RandomShapes) {
  std::mt19937_64 engine(6);
  for (int i = 0; i < 24; ++i) {
    const auto width = static_cast<std::int64_t>(engine() % 200 + 1), rows = static_cast<std::int64_t>(engine() % 20);
    check(DType::f32, normal(static_cast<std::size_t>(rows * width), engine()), width, roundings[engine() % 4]);
  }
}

TEST_P(DynamicQuantTest, RejectsWrongShapes) {
  const GuardedTensor x(device(), DType::f32, {3, 5}), q(device(), DType::i8, {3, 4}),
      right_q(device(), DType::i8, {3, 5});
  const GuardedTensor scale(device(), DType::f32, {3}), row_ends(device(), DType::i32, {2});
  const auto reason = [&](const dynamic_quant::Args& args, std::int32_t lanes = 0) {
    return dynamic_quant::reject(args, {lanes}, device().caps());
  };
  EXPECT_EQ(reason({x, {}, 0, right_q, scale}), "");
  EXPECT_THAT(reason({x, {}, 0, q, scale}), testing::HasSubstr("expected i8[3, 5], got i8[3, 4]"));
  EXPECT_THAT(reason({right_q, {}, 0, right_q, scale}), testing::HasSubstr("got i8[3, 5]"));
  EXPECT_THAT(reason({x, {}, 0, right_q, row_ends}), testing::HasSubstr("expected f32[3], got i32[2]"));
  EXPECT_THAT(reason({x, row_ends, 2, right_q, scale}), testing::HasSubstr("2 x 2 experts does not give 3 rows"));
  EXPECT_THAT(reason({x, {}, 1, right_q, scale}), testing::HasSubstr("needs row_ends"));
  EXPECT_THAT(reason({x, {}, 0, right_q, scale}, 1 << 20), testing::HasSubstr("1048576 are outside [0, "));
  EXPECT_THROW(dynamic_quant::enqueue(device().stream, {x, {}, 0, q, scale}), Error);
}

}  // namespace
}  // namespace moecl::test
