#include "tests/cases/quantize_rows.hpp"

#include <moecl/error.hpp>
#include <moecl/safetensors.hpp>

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <random>

#include "tests/host/files.hpp"
#include "tests/kernels_cl/operator_test.hpp"
#include "tests/oracle/quantize_rows.hpp"

namespace moecl::test {
namespace {

using quantize_rows::Codes;
using quantize_rows::Rounding;
using quantize_rows::Scheme;

constexpr Rounding roundings[] = {Rounding::divide,
                                  Rounding::divide_scaled,
                                  Rounding::multiply_reciprocal,
                                  Rounding::multiply_127_by_amax,
                                  Rounding::multiply_127_by_amax_scaled,
                                  Rounding::divide_ties_away,
                                  Rounding::multiply_reciprocal_f16};

using Case = QuantizeRowsCase;

class QuantizeRowsTest : public OperatorTest<QuantizeRowsCase> {};
MOECL_ON_EVERY_DEVICE(QuantizeRowsTest);

TEST_P(QuantizeRowsTest, EveryRoundingOrderIsExact) {
  for (const Rounding rounding : roundings) check({33, normal(200 * 33, 1), rounding});
  for (const Rounding rounding : roundings)
    check({32, normal(40 * 32, 1), rounding, Scheme::symmetric, DType::f32, true});
}

TEST_P(QuantizeRowsTest, TiesGoToEvenOrAway) {
  // amax = 127, so the scale is 1 and halves stay ties.
  std::vector<double> row = {127};
  for (double tie = -126.5; tie < 127; tie += 1) row.push_back(tie);
  const auto width = static_cast<std::int64_t>(row.size());
  for (const Rounding rounding : {Rounding::divide, Rounding::divide_ties_away}) check({width, row, rounding});
}

TEST_P(QuantizeRowsTest, RoundsTwiceThroughF16WhereTheRuleSaysSo) {
  // 64.51 becomes 64.5 in f16 and then 64.
  check({4, {127, 64.51, -64.51, 33.49}, Rounding::multiply_reciprocal_f16});
}

TEST_P(QuantizeRowsTest, EveryStorageTypeAndWidth) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const std::int64_t width : widths)
      for (const std::int64_t rows : row_counts)
        check({width, normal(static_cast<std::size_t>(rows * width), 2), Rounding::divide, Scheme::symmetric, dtype});
}

constexpr Codes floats[] = {Codes::e4m3, Codes::e5m2, Codes::hif8};

TEST_P(QuantizeRowsTest, FloatsOfARowOrOfGroups) {
  for (const Codes codes : floats)
    for (const Rounding rounding : {Rounding::divide, Rounding::multiply_127_by_amax,
                                    Rounding::multiply_127_by_amax_scaled, Rounding::divide_scaled})
      for (const std::int64_t width : {33, 300})
        for (const std::int32_t group : {0, 128}) {
          Case c{width, normal(static_cast<std::size_t>(7 * width), 15), rounding, Scheme::symmetric, DType::bf16};
          std::fill_n(c.x.begin() + width, width, -0.0);
          c.codes = codes;
          c.group = group;
          c.smooth = normal(static_cast<std::size_t>(width), 16);
          check(c);
        }
}

TEST_P(QuantizeRowsTest, GroupsWithPowersOfTwo) {
  for (const Codes codes : {Codes::e4m3, Codes::e5m2})
    for (const float least : {0.0F, 1e-4F}) {
      Case c{300, normal(5 * 300, 17), Rounding::divide, Scheme::symmetric, DType::bf16};
      for (std::size_t i = 300; i < 600; ++i) c.x[i] *= 1e-6;
      std::fill_n(c.x.begin() + 600, 300, 0.0);
      std::fill_n(c.x.begin() + 900, 128, 448.0);  // a ratio of exactly one
      c.codes = codes;
      c.group = 128;
      c.power_of_two = true;
      c.least_amax = least;
      c.index = {4, 3, -1, 2, 1, 0};
      check(c);
    }
}

TEST_P(QuantizeRowsTest, GivenScalesAndNone) {
  std::vector<double> x = {0, -0.0, 1e-8, -1e-7, 40000, 40960, -50000, 65504, 0.5, 1.5, 2.5, -2.5, 126.5, 200, -200};
  for (int exponent = -26; exponent <= 15; ++exponent)  // every binade of hif8, its halves too
    for (int step = 0; step < 32; ++step) x.push_back(std::ldexp(32 + step, exponent - 5));
  const auto width = static_cast<std::int64_t>(x.size());
  Case c{width, x, Rounding::divide, Scheme::given};
  for (const Codes codes : {Codes::integer, Codes::e4m3, Codes::e5m2, Codes::hif8})
    for (const std::vector<float>& given : {std::vector<float>{}, {0.75F}}) {
      c.codes = codes;
      c.given = given;
      check(c);
    }
}

// The codes come from en_dtypes 0.0.4, the package of the format's makers.
TEST(Hif8OracleTest, AgreesWithTheMakersPackage) {
  const std::pair<float, int> known[] = {{1.0625F, 9},    {1.1875F, 10},     {1.03125F, 8},   {-1.0625F, 137},
                                         {0x1p-23F, 1},   {0x1.fp-24F, 0},   {0x1.8p-22F, 2}, {40000.0F, 110},
                                         {50000.0F, 111}, {0x1.8p-16F, 126}, {1e-30F, 0},     {-0.0F, 0},
                                         {INFINITY, 111}, {-INFINITY, 239},  {4.0F, 32},      {0.0625F, 80}};
  for (const auto& [value, code] : known) EXPECT_EQ(oracle::float_code(value, Codes::hif8, false), code) << value;
}

TEST_P(QuantizeRowsTest, AsymmetricRowsUseTheWholeRange) {
  for (const std::int64_t width : {8, 16, 40, 1048}) {
    std::vector<double> x = normal(static_cast<std::size_t>(5 * width), 7);
    for (std::int64_t i = 0; i < 2 * width; ++i) {  // a row above and one below zero
      double& value = x[static_cast<std::size_t>(i)];
      value = i < width ? std::abs(value) + 1 : -std::abs(value) - 1;
    }
    for (const bool int4 : {false, true}) check({width, x, Rounding::divide, Scheme::asymmetric, DType::f32, int4});
  }
  check({3, {0, 0, 0, 5, 5, 5}, Rounding::divide, Scheme::asymmetric});
}

TEST_P(QuantizeRowsTest, StaticCodesRoundToF16AfterEachStep) {
  std::vector<double> x = normal(7 * 77, 8);
  x[5] = 1e6;  // infinite in f16
  x[6] = -1e6;
  for (const DType dtype : {DType::f32, DType::bf16}) check({77, x, Rounding::divide, Scheme::static_f16, dtype});
}

TEST_P(QuantizeRowsTest, SmoothVectorsAreForAllRowsOrForAnExperts) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    check({19, normal(3 * 19, 9), Rounding::divide, Scheme::symmetric, dtype, false, normal(19, 10), dtype});
  for (const ValidRows& rows : valid_rows()) {
    const std::size_t experts = rows.row_ends.size();
    Case c{24, normal(rows.valid.size() * 24, 11)};
    c.smooth = normal(experts * 24, 12);
    c.rows = rows;
    check(c);
    c.scheme = Scheme::asymmetric;
    check(c);
  }
}

TEST_P(QuantizeRowsTest, GathersRowsAndLeavesThoseOutOfRange) {
  Case c{21, normal(4 * 21, 13)};
  c.index = {3, 11, -1, 0, 12, 7, 7, -3, 24, 5, 2147483647, 9, -2147483647 - 1};
  for (const std::int32_t divisor : {1, 3}) {
    c.divisor = divisor;
    check(c);
  }
  c.rows = {{4, 4, 9}, 0, {true, true, true, true, true, true, true, true, true, false, false, false, false}};
  c.smooth = normal(3 * 21, 14);
  check(c);
}

TEST_P(QuantizeRowsTest, RowsPastTheValidOnesAreNeitherReadNorWritten) {
  for (const ValidRows& rows : valid_rows()) {
    Case c{33, normal(rows.valid.size() * 33, 3)};
    for (std::size_t i = 0; i < c.x.size(); ++i)
      if (!rows.valid[i / 33]) c.x[i] = std::nan("");
    c.rows = rows;
    check(c);
  }
}

TEST_P(QuantizeRowsTest, ZerosHugeAndTinyRows) {
  for (const double amax : {0.0, 1e-45, 1.4e-36, 1.5e-36, 3e-36, 3e38}) {
    std::vector<double> row = normal(40, 4);
    for (double& value : row) value = std::clamp(value, -1.0, 1.0) * amax;
    row[7] = -amax;
    for (const Rounding rounding : roundings) check({40, row, rounding});
  }
}

TEST_P(QuantizeRowsTest, AgreesWithTheGoldenRows) {
  const SafetensorsFile file = SafetensorsFile::open(data_path("formats/int8_per_token_per_channel.safetensors"));
  const HostTensor input = file.tensor("weight"), golden_q = file.tensor("weight_q"),
                   golden_scale = file.tensor("weight_scale");
  const std::int64_t rows = input.shape[0], width = input.shape[1];
  std::vector<float> values(static_cast<std::size_t>(rows * width)), scales(static_cast<std::size_t>(rows));
  std::vector<std::int8_t> codes(values.size());
  input.data.read(values.data(), input.size_bytes);
  golden_scale.data.read(scales.data(), golden_scale.size_bytes);
  golden_q.data.read(codes.data(), golden_q.size_bytes);
  const GuardedTensor x(device(), DType::f32, {rows, width}, values), q(device(), DType::i8, {rows, width}),
      scale(device(), DType::f32, {rows});
  quantize_rows::enqueue(device().stream, {x, {}, 0, q, scale});
  const bool exact = device().caps().correctly_rounded_divide;
  const auto device_scales = scale.read<float>();
  const auto device_codes = q.read<std::int8_t>();
  for (std::size_t r = 0; r < scales.size(); ++r)
    ASSERT_NEAR(device_scales[r], scales[r], exact ? 0 : 3e-7F * scales[r]) << "row " << r;
  for (std::size_t i = 0; i < codes.size(); ++i)
    ASSERT_NEAR(device_codes[i], codes[i], exact ? 0 : 1) << "element " << i;
}

TEST_P(QuantizeRowsTest, NaNAndInfinityShowInTheScale) {
  for (const double bad :
       {std::nan(""), std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()}) {
    std::vector<double> values = normal(40, 5);
    values[21] = bad;
    const GuardedTensor x = upload(device(), DType::f32, {1, 40}, values), q(device(), DType::i8, {1, 40}),
                        scale(device(), DType::f32, {1});
    quantize_rows::enqueue(device().stream, {x, {}, 0, q, scale});
    EXPECT_FALSE(std::isfinite(scale.values()[0])) << bad;
    q.check_guards();
  }
}

TEST_P(QuantizeRowsTest, RandomShapes) {
  std::mt19937_64 engine(6);
  for (int i = 0; i < 24; ++i) {
    const auto width = static_cast<std::int64_t>(engine() % 200 + 1), rows = static_cast<std::int64_t>(engine() % 20);
    Case c{width, normal(static_cast<std::size_t>(rows * width), engine()), roundings[engine() % std::size(roundings)]};
    c.int4 = width % 8 == 0 && engine() % 2 == 0;
    if (engine() % 2 == 0) c.smooth = normal(static_cast<std::size_t>(width), engine());
    check(c);
  }
}

TEST_P(QuantizeRowsTest, RejectsWrongShapes) {
  const GuardedTensor x(device(), DType::f32, {3, 5}), q(device(), DType::i8, {3, 4}),
      right_q(device(), DType::i8, {3, 5});
  const GuardedTensor scale(device(), DType::f32, {3}), row_ends(device(), DType::i32, {2});
  const auto reason = [&](const quantize_rows::Args& args, std::int32_t lanes = 0) {
    return quantize_rows::reject(args, {lanes}, device().record());
  };
  EXPECT_EQ(reason({x, {}, 0, right_q, scale}), "");
  EXPECT_THAT(reason({x, {}, 0, q, scale}),
              testing::HasSubstr("expected i8[3, 5], i32[3, 0] or u8[3, 2], got i8[3, 4]"));
  EXPECT_THAT(reason({right_q, {}, 0, right_q, scale}), testing::HasSubstr("got i8[3, 5]"));
  EXPECT_THAT(reason({x, {}, 0, right_q, row_ends}), testing::HasSubstr("expected f32[3], got i32[2]"));
  EXPECT_THAT(reason({x, row_ends, 2, right_q, scale}), testing::HasSubstr("2 x 2 experts does not give 3 rows"));
  EXPECT_THAT(reason({x, {}, 1, right_q, scale}), testing::HasSubstr("needs row_ends"));
  const quantize_rows::Args fine{x, {}, 0, right_q, scale};
  const auto reason_with = [&](const auto& change) {
    quantize_rows::Args args = fine;
    change(args);
    return reason(args);
  };
  EXPECT_THAT(reason_with([&](auto& args) { args.offset = scale; }), testing::HasSubstr("symmetric row has none"));
  EXPECT_THAT(reason_with([&](auto& args) { args.scheme = Scheme::asymmetric; }),
              testing::HasSubstr("offset: expected f32[3]"));
  EXPECT_THAT(reason_with([&](auto& args) { args.scheme = Scheme::static_f16; }),
              testing::HasSubstr("scale: expected f32[1], got f32[3]"));
  EXPECT_THAT(reason_with([&](auto& args) { args.codes = Codes::e4m3; }), testing::HasSubstr("q: expected u8[3, 5]"));
  EXPECT_THAT(reason_with([&](auto& args) { args.power_of_two = true; }), testing::HasSubstr("groups of 128"));
  EXPECT_THAT(reason_with([&](auto& args) { args.least_amax = -1; }), testing::HasSubstr("negative"));
  EXPECT_THAT(reason_with([&](auto& args) { args.group = 128; }), testing::HasSubstr("group: expected 0, or 8"));
  EXPECT_THAT(reason_with([&](auto& args) { args.smooth = scale; }),
              testing::HasSubstr("expected [5] or [0, 5] for the experts of row_ends, got f32[3]"));
  EXPECT_THAT(reason_with([&](auto& args) { args.index = scale; }), testing::HasSubstr("expected i32[R], got f32[3]"));
  EXPECT_THAT(reason_with([&](auto& args) { args.divisor = 0; }), testing::HasSubstr("0 is not positive"));
  EXPECT_THAT(reason_with([&](auto& args) {
                args.q = GuardedTensor(device(), DType::i32, {3, 1});
              }),
              testing::HasSubstr("packed by eight, but rows have 5 columns"));
  EXPECT_THAT(reason({x, {}, 0, right_q, scale}, 1 << 20), testing::HasSubstr("1048576 are outside [0, "));
  EXPECT_THROW(quantize_rows::enqueue(device().stream, {x, {}, 0, q, scale}), Error);
}

}  // namespace
}  // namespace moecl::test
