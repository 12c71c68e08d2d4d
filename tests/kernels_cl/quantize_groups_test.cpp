#include "tests/cases/quantize_groups.hpp"

#include <moecl/code_numbers.hpp>
#include <moecl/error.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/kernels_cl/operator_test.hpp"
#include "tests/sampling.hpp"

namespace moecl::test {
namespace {

using quantize_groups::Args;
using quantize_groups::Quotient;
using quantize_groups::Rounding;
using quantize_groups::ScaleRule;

constexpr CodeType formats[] = {CodeType::i8,      CodeType::i4,      CodeType::f8_e4m3, CodeType::f8_e5m2,
                                CodeType::f6_e2m3, CodeType::f6_e3m2, CodeType::f4_e2m1};
constexpr ScaleRule rules[] = {ScaleRule::ratio,   ScaleRule::power_of_two, ScaleRule::mx_floor,
                               ScaleRule::mx_ceil, ScaleRule::mx_even,      ScaleRule::mx_nearest,
                               ScaleRule::mx_up,   ScaleRule::e4m3,         ScaleRule::ratio_over_rows,
                               ScaleRule::given,   ScaleRule::range};

bool is_mx(ScaleRule rule) { return rule >= ScaleRule::mx_floor && rule <= ScaleRule::mx_up; }

using Case = QuantizeGroupsCase;

class QuantizeGroupsTest : public OperatorTest<QuantizeGroupsCase> {
 protected:
  void check(const Case& of,
             const std::vector<std::int32_t>& lanes = {std::begin(lane_choices), std::end(lane_choices)}) const {
    SCOPED_TRACE(testing::Message() << "format " << name(of.rules.format) << " in " << name(of.q) << ", rule "
                                    << static_cast<int>(of.rules.rule) << ", quotient "
                                    << static_cast<int>(of.rules.quotient) << ", rounding "
                                    << static_cast<int>(of.rules.rounding));
    OperatorTest::check(of, lanes);
  }
};
MOECL_ON_EVERY_DEVICE(QuantizeGroupsTest);

/// Numbers of every size, zeros of both signs, a group of zeros.
std::vector<double> mixed(std::size_t count, std::mt19937_64& engine) {
  std::vector<double> x = normal(count, engine());
  for (double& value : x) {
    const auto choice = engine() % 16;
    if (choice == 0) value = std::copysign(0.0, value);
    if (choice == 1) value = std::ldexp(value, -static_cast<int>(engine() % 30));
    if (choice == 2) value *= 300;
  }
  if (count > 40 && engine() % 2 == 0)
    std::fill_n(x.begin() + static_cast<std::ptrdiff_t>(engine() % (count - 40)), 40, 0.0);
  return x;
}

/// A sample of the pairs of a format and a rule for it, with every quotient. Each is a program, so none comes twice.
std::vector<Args> formats_rules_and_quotients() {
  std::vector<Args> all;
  for (std::size_t f = 0; f < std::size(formats); ++f)
    for (std::size_t r = 0; r < std::size(rules); ++r) {
      const CodeType format = formats[f];
      const ScaleRule rule = rules[r];
      if (!is_sampled(f + r, 2)) continue;
      if (is_integer(format) && (is_mx(rule) || rule == ScaleRule::e4m3)) continue;
      if (rule == ScaleRule::range && format != CodeType::i8) continue;
      const int quotients = rule == ScaleRule::ratio ? 3 : rule == ScaleRule::given ? 2 : 1;
      for (int quotient = 0; quotient < quotients; ++quotient) {
        Args& args = all.emplace_back();
        args.format = format, args.rule = rule, args.quotient = static_cast<Quotient>(quotient);
      }
    }
  return all;
}

TEST_P(QuantizeGroupsTest, EveryFormatAndRuleOnRandomShapes) {
  std::mt19937_64 engine(1);
  const std::int64_t group_sizes[] = {0, 1, 8, 16, 32, 64, 128};
  int i = 0;
  for (const Args& args : formats_rules_and_quotients()) {
    SCOPED_TRACE(++i);
    Case c;
    c.rules = args;
    const bool integer = is_integer(c.rules.format), mx = is_mx(c.rules.rule);
    if (!c.of_tensor())
      c.rules.group = engine() % 8 == 0 ? static_cast<std::int64_t>(engine() % 90) + 1 : group_sizes[engine() % 7];
    if (c.rules.rule == ScaleRule::e4m3) c.rules.global_scale = static_cast<float>(engine() % 3000 + 1);
    if (integer && c.rules.rule != ScaleRule::range) c.rules.rounding = static_cast<Rounding>(i % 3);
    if (engine() % 4 == 0) c.rules.least_amax = 0.25F;
    if (engine() % 4 == 0) c.rules.least_scale = 1.0F / (448 * 512);
    if (engine() % 4 == 0) c.rules.most_amax = 1.5F;
    if (c.rules.quotient == Quotient::largest_by_amax)
      c.rules.least_amax = c.rules.least_scale = 0, c.rules.most_amax = INFINITY;
    c.width = static_cast<std::int64_t>(engine() % 200) + 1;
    if (engine() % 8 == 0) c.width += 1100;
    const DType dtypes[] = {DType::f32, DType::f16, DType::bf16};
    c.dtype = dtypes[engine() % 3];
    if (engine() % 2 == 0) c.q = integer ? DType::i8 : storage_dtype(c.rules.format).value_or(DType::u8);
    if ((mx || c.rules.rule == ScaleRule::power_of_two) && engine() % 2 == 0) c.scale = DType::u8;
    if (c.rules.rule == ScaleRule::e4m3 && engine() % 2 == 0) c.scale = DType::f8_e4m3;
    c.x = mixed(static_cast<std::size_t>(c.width) * (engine() % 5 + 1), engine);
    const std::size_t lanes = engine() % std::size(lane_choices);
    if (takes(static_cast<std::size_t>(i))) check(c, {lane_choices[lanes]});
  }
}

TEST_P(QuantizeGroupsTest, NumbersOfMxFormatsAreExactInBf16) {
  std::mt19937_64 engine(9);
  for (const CodeType format : {CodeType::f4_e2m1, CodeType::f6_e2m3, CodeType::f6_e3m2}) {
    Case c;
    c.rules.format = format, c.rules.rule = ScaleRule::mx_floor, c.rules.group = 32;
    c.width = 200, c.dtype = c.q = DType::bf16;
    c.x = mixed(600, engine);
    check(c);
  }
}

TEST_P(QuantizeGroupsTest, EveryStorageTypeWidthAndRowCount) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const std::int64_t width : widths)
      for (const std::int64_t rows : row_counts) {
        if (dtype != DType::f32 && width != 17) continue;  // f32 covers the shapes
        Case c{width, normal(static_cast<std::size_t>(rows * width), 2), {}, dtype, DType::f8_e4m3};
        c.rules.group = 128;
        check(c);
      }
}

TEST_P(QuantizeGroupsTest, RowsPastTheValidOnesAreNeitherReadNorWritten) {
  // The scale of all rows would show a single NaN.
  for (const ScaleRule rule : {ScaleRule::ratio, ScaleRule::ratio_over_rows})
    for (const ValidRows& rows : valid_rows()) {
      Case c{33, normal(rows.valid.size() * 33, 3), {}, DType::f32, DType::f8_e4m3};
      for (std::size_t i = 0; i < c.x.size(); ++i)
        if (!rows.valid[i / 33]) c.x[i] = std::nan("");
      c.rules.rule = rule;
      c.rows = rows;
      check(c);
    }
}

TEST_P(QuantizeGroupsTest, GathersRowsAndLeavesThoseOutOfRange) {
  for (const ScaleRule rule : {ScaleRule::ratio, ScaleRule::ratio_over_rows, ScaleRule::range})
    for (const std::int32_t divisor : {1, 3}) {
      Case c{40, normal(4 * 40, 13), {}, DType::f32, DType::i8};
      c.rules.format = CodeType::i8;
      c.rules.rule = rule;
      c.rules.divisor = divisor;
      c.index = {3, 2, -1, 0, 12, 1, -3, 24, 5, 2147483647, -2147483647 - 1};
      check(c);
    }
}

TEST_P(QuantizeGroupsTest, ZerosHugeAndTinyGroups) {
  for (const double amax : {0.0, 1e-45, 1e-38, 5e-36, 6e-36, 3e38})
    for (const CodeType format : {CodeType::i8, CodeType::f8_e4m3, CodeType::f4_e2m1})
      for (const ScaleRule rule : {ScaleRule::ratio, ScaleRule::power_of_two, ScaleRule::range}) {
        if (rule == ScaleRule::range && format != CodeType::i8) continue;
        std::vector<double> row = normal(40, 4);
        for (double& value : row) value = std::clamp(value, -1.0, 1.0) * amax;
        row[7] = -amax;
        Case c{40, row};
        c.rules.format = format;
        c.rules.rule = rule;
        check(c);
      }
}

TEST_P(QuantizeGroupsTest, NaNAndInfinityStayInTheirGroup) {
  for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL})
    for (const CodeType format : {CodeType::i8, CodeType::f8_e4m3, CodeType::f6_e2m3})
      for (const ScaleRule rule :
           {ScaleRule::ratio, ScaleRule::mx_floor, ScaleRule::e4m3, ScaleRule::given, ScaleRule::range}) {
        if (format == CodeType::i8 ? is_mx(rule) || rule == ScaleRule::e4m3 : rule == ScaleRule::range) continue;
        Case c{96, normal(96, 5)};
        c.x[40] = bad;
        c.rules.format = format;
        c.rules.rule = rule;
        if (!c.of_tensor()) c.rules.group = 32;
        check(c);
        if (format != CodeType::f8_e4m3) continue;
        c.q = DType::f8_e4m3;
        check(c);
      }
}

TEST_P(QuantizeGroupsTest, BlocksOfRowsAndColumnsShareAScale) {
  struct Block {
    std::int64_t rows, columns, block_rows, block_columns;
  };
  for (const Block& of : {Block{70, 100, 32, 48}, Block{5, 33, 128, 0}, Block{128, 256, 128, 128}, Block{3, 1, 2, 16}})
    for (const CodeType format : {CodeType::f8_e4m3, CodeType::i4})
      for (const ScaleRule rule : {ScaleRule::ratio, ScaleRule::power_of_two}) {
        Case c{of.columns, normal(static_cast<std::size_t>(of.rows * of.columns), 6), {}, DType::bf16};
        c.q = is_integer(format) ? DType::i8 : DType::f8_e4m3;
        c.rules.format = format;
        c.rules.group = of.block_columns;
        c.rules.group_rows = of.block_rows;
        c.rules.rule = rule;
        check(c);
      }
}

// The exponents come from a script with the formulas of the references: compressed-tensors' generate_mx_scales,
// Quark's even_round and its floor and ceil, DeepGEMM's and ModelOpt's ceil(log2(amax / largest)).
TEST_P(QuantizeGroupsTest, PowersOfTwoAreThoseOfTheReferences) {
  const std::vector<double> largest = {1, 1.25, 1.5, 1.625, 1.75, 1.8125, 1.875, 1.9375, 1.96875, 448, 449};
  struct Exponents {
    CodeType format;
    ScaleRule rule;
    std::vector<int> expected;
  };
  const Exponents cases[] = {
      {CodeType::f8_e4m3, ScaleRule::mx_floor, {-8, -8, -8, -8, -8, -8, -8, -8, -8, 0, 0}},
      {CodeType::f8_e4m3, ScaleRule::mx_ceil, {-8, -8, -8, -8, -8, -7, -7, -7, -7, 0, 1}},
      {CodeType::f8_e4m3, ScaleRule::mx_even, {-8, -8, -8, -8, -7, -7, -7, -7, -7, 1, 1}},
      {CodeType::f8_e4m3, ScaleRule::mx_nearest, {-8, -8, -8, -8, -8, -8, -8, -7, -7, 0, 0}},
      {CodeType::f8_e4m3, ScaleRule::mx_up, {-8, -7, -7, -7, -7, -7, -7, -7, -7, 1, 1}},
      {CodeType::f8_e5m2, ScaleRule::mx_floor, {-15, -15, -15, -15, -15, -15, -15, -15, -15, -7, -7}},
      {CodeType::f8_e5m2, ScaleRule::mx_ceil, {-15, -15, -15, -15, -15, -14, -14, -14, -14, -7, -6}},
      {CodeType::f8_e5m2, ScaleRule::mx_even, {-15, -15, -15, -15, -14, -14, -14, -14, -14, -6, -6}},
      {CodeType::f8_e5m2, ScaleRule::mx_nearest, {-15, -15, -15, -15, -15, -15, -14, -14, -14, -7, -7}},
      {CodeType::f8_e5m2, ScaleRule::mx_up, {-15, -14, -14, -14, -14, -14, -14, -14, -14, -6, -6}},
      {CodeType::f6_e2m3, ScaleRule::mx_floor, {-2, -2, -2, -2, -2, -2, -2, -2, -2, 6, 6}},
      {CodeType::f6_e2m3, ScaleRule::mx_ceil, {-2, -2, -2, -2, -2, -2, -2, -1, -1, 6, 6}},
      {CodeType::f6_e2m3, ScaleRule::mx_even, {-2, -2, -2, -2, -1, -1, -1, -1, -1, 7, 7}},
      {CodeType::f6_e2m3, ScaleRule::mx_nearest, {-2, -2, -2, -2, -2, -2, -2, -1, -1, 6, 6}},
      {CodeType::f6_e2m3, ScaleRule::mx_up, {-2, -1, -1, -1, -1, -1, -1, -1, -1, 7, 7}},
      {CodeType::f6_e3m2, ScaleRule::mx_floor, {-4, -4, -4, -4, -4, -4, -4, -4, -4, 4, 4}},
      {CodeType::f6_e3m2, ScaleRule::mx_ceil, {-4, -4, -4, -4, -4, -3, -3, -3, -3, 4, 5}},
      {CodeType::f6_e3m2, ScaleRule::mx_even, {-4, -4, -4, -4, -3, -3, -3, -3, -3, 5, 5}},
      {CodeType::f6_e3m2, ScaleRule::mx_nearest, {-4, -4, -4, -4, -4, -4, -3, -3, -3, 4, 4}},
      {CodeType::f6_e3m2, ScaleRule::mx_up, {-4, -3, -3, -3, -3, -3, -3, -3, -3, 5, 5}},
      {CodeType::f4_e2m1, ScaleRule::mx_floor, {-2, -2, -2, -2, -2, -2, -2, -2, -2, 6, 6}},
      {CodeType::f4_e2m1, ScaleRule::mx_ceil, {-2, -2, -2, -1, -1, -1, -1, -1, -1, 7, 7}},
      {CodeType::f4_e2m1, ScaleRule::mx_even, {-2, -2, -2, -2, -1, -1, -1, -1, -1, 7, 7}},
      {CodeType::f4_e2m1, ScaleRule::mx_nearest, {-2, -2, -2, -2, -1, -1, -1, -1, -1, 7, 7}},
      {CodeType::f4_e2m1, ScaleRule::mx_up, {-2, -1, -1, -1, -1, -1, -1, -1, -1, 7, 7}},
      {CodeType::f8_e4m3, ScaleRule::power_of_two, {-8, -8, -8, -8, -8, -7, -7, -7, -7, 0, 1}},
  };
  const auto rows = static_cast<std::int64_t>(largest.size());
  const GuardedTensor x = upload(device(), DType::f32, {rows, 1}, largest), q(device(), DType::f32, {rows, 1}),
                      scale(device(), DType::f32, {rows, 1});
  for (const Exponents& row : cases) {
    SCOPED_TRACE(testing::Message() << name(row.format) << ", rule " << static_cast<int>(row.rule));
    Args args;
    args.x = x, args.q = q, args.scale = scale;
    args.format = row.format, args.rule = row.rule;
    quantize_groups::enqueue(device().stream, args, {16});  // one program for all rules on a CPU
    std::vector<int> exponents;
    for (const double value : scale.values()) exponents.push_back(std::ilogb(value));
    EXPECT_EQ(exponents, row.expected);
  }
}

TEST_P(QuantizeGroupsTest, EveryExpertsRowsHaveTheirOwnGivenScale) {
  std::vector<ValidRows> all = valid_rows();
  std::erase_if(all, [](const ValidRows& rows) { return rows.row_ends.empty(); });
  ASSERT_FALSE(all.empty());
  for (const ScaleRule rule : {ScaleRule::given, ScaleRule::e4m3})
    for (const ValidRows& rows : all) {
      Case c{40, normal(7 * 40, 8)};
      c.rules.format = rule == ScaleRule::given ? CodeType::f8_e4m3 : CodeType::f4_e2m1;
      c.rules.rule = rule;
      if (rule == ScaleRule::e4m3) c.rules.group = 16;
      c.rows = rows;
      c.rules.divisor = 2;
      for (std::size_t row = 0; row < rows.valid.size(); ++row)
        c.index.push_back(static_cast<std::int32_t>(row * 5 % 14));
      for (std::size_t expert = 0; expert < rows.row_ends.size(); ++expert)
        c.of_experts.push_back(rule == ScaleRule::given ? 0.01 * static_cast<double>(expert + 1)
                                                        : 300 * static_cast<double>(expert + 1));
      check(c);
    }
}

TEST_P(QuantizeGroupsTest, RejectsWhatItCannotDo) {
  const GuardedTensor x(device(), DType::f32, {3, 40}), q(device(), DType::f8_e4m3, {3, 40}),
      q_i8(device(), DType::i8, {3, 40}), scale(device(), DType::f32, {3, 2}), bytes(device(), DType::u8, {3, 2}),
      one(device(), DType::f32, {1});
  const auto reason = [&](const auto& change, std::int32_t lanes = 0) {
    Args args;
    args.x = x;
    args.group = 32;
    args.q = q;
    args.scale = scale;
    change(args);
    return quantize_groups::reject(args, {lanes}, device().record());
  };
  EXPECT_EQ(reason([](Args&) {}), "");
  EXPECT_EQ(reason([&](Args& args) { args.q = x, args.scale = {}; }), "");
  EXPECT_EQ(reason([&](Args& args) { args.rule = ScaleRule::mx_floor, args.scale = bytes; }), "");
  EXPECT_THAT(reason([&](Args& args) { args.x = q; }),
              testing::HasSubstr("x: expected float [N, K], got f8_e4m3[3, 40]"));
  EXPECT_THAT(reason([&](Args& args) { args.q = q_i8; }),
              testing::HasSubstr("q: expected f8_e4m3 or float [3, 40], got i8[3, 40]"));
  EXPECT_THAT(reason([&](Args& args) { args.format = CodeType::f4_e2m1; }),
              testing::HasSubstr("q: expected u8 or float [3, 40]"));
  EXPECT_THAT(reason([&](Args& args) { args.format = CodeType::u4; }),
              testing::HasSubstr("format: expected i8, i4 or a floating"));
  EXPECT_THAT(reason([&](Args& args) { args.scale = {}; }),
              testing::HasSubstr("scale: expected f32 [3, 2], got absent"));
  EXPECT_THAT(reason([&](Args& args) { args.scale = bytes; }),
              testing::HasSubstr("scale: expected f32 [3, 2], got u8[3, 2]"));
  EXPECT_THAT(reason([&](Args& args) { args.group = 16; }), testing::HasSubstr("scale: expected f32 [3, 3]"));
  EXPECT_THAT(reason([&](Args& args) { args.group_rows = 2; }),
              testing::HasSubstr("scale: expected contiguous f32 [2, 2], got f32[3, 2]"));
  EXPECT_THAT(reason([&](Args& args) { args.group_rows = 0; }),
              testing::HasSubstr("group_rows: 0 is not in [1, 2^31)"));
  EXPECT_THAT(reason([&](Args& args) { args.group_rows = 2, args.rule = ScaleRule::e4m3; }),
              testing::HasSubstr("share a scale by the rules ratio and power_of_two alone"));
  EXPECT_THAT(reason([&](Args& args) { args.group = -1; }), testing::HasSubstr("-1 is negative"));
  EXPECT_THAT(reason([&](Args& args) {
                for (TensorView* view : {&args.x, &args.q, &args.scale}) view->shape[0] = std::int64_t{1} << 30;
              }),
              testing::HasSubstr("x: 1073741824 rows of 2 groups are more than 2^31 groups"));
  EXPECT_THAT(reason([&](Args& args) { args.rule = ScaleRule::given, args.scale = one; }),
              testing::HasSubstr("one scale for all rows, but groups of 32 columns"));
  EXPECT_THAT(reason([&](Args& args) { args.rule = ScaleRule::given, args.group = 0; }),
              testing::HasSubstr("scale: expected one f32, got f32[3, 2]"));
  EXPECT_THAT(reason([&](Args& args) { args.format = CodeType::i8, args.rule = ScaleRule::mx_ceil; }),
              testing::HasSubstr("are for floating-point codes, not for integers"));
  EXPECT_THAT(reason([&](Args& args) { args.rule = ScaleRule::range; }),
              testing::HasSubstr("rule: range is of i8 codes, divided and rounded to even, got f8_e4m3"));
  EXPECT_THAT(reason([&](Args& args) { args.format = CodeType::i8, args.q = q_i8, args.rule = ScaleRule::range; }),
              testing::HasSubstr("zero: expected i32 [3, 2] beside the scales, got absent"));
  EXPECT_THAT(reason([&](Args& args) { args.zero = scale; }),
              testing::HasSubstr("zero: the rule range alone has zero points, got f32[3, 2]"));
  EXPECT_THAT(reason([&](Args& args) { args.rounding = Rounding::toward_zero; }),
              testing::HasSubstr("rounded to nearest even"));
  EXPECT_THAT(reason([&](Args& args) { args.least_amax = -1; }), testing::HasSubstr("least_amax: -1 is negative"));
  EXPECT_THAT(reason([&](Args& args) { args.most_amax = std::nanf(""); }), testing::HasSubstr("below least_amax"));
  EXPECT_THAT(reason([&](Args& args) { args.global_scale = 2; }), testing::HasSubstr("belongs to the rule e4m3"));
  EXPECT_THAT(reason([&](Args& args) { args.rule = ScaleRule::e4m3, args.global_scale = 0; }),
              testing::HasSubstr("not positive"));
  EXPECT_THAT(reason([&](Args& args) { args.rule = ScaleRule::e4m3, args.global_scales = scale; }),
              testing::HasSubstr("global_scales: expected f32[1]"));
  EXPECT_THAT(reason([&](Args& args) { args.global_scales = one; }),
              testing::HasSubstr("of the rule e4m3 in place of global_scale, got f32[1]"));
  EXPECT_THAT(reason([&](Args& args) { args.index = scale; }), testing::HasSubstr("index: expected i32[R]"));
  EXPECT_THAT(reason([&](Args& args) { args.divisor = 0; }), testing::HasSubstr("0 is not positive"));
  EXPECT_THAT(reason([&](Args& args) { args.rows_per_expert = 3; }), testing::HasSubstr("3 needs row_ends"));
  EXPECT_THAT(reason([](Args&) {}, 3), testing::HasSubstr("3 is no power of two"));
  EXPECT_THROW(quantize_groups::enqueue(device().stream, {}), Error);
}

}  // namespace
}  // namespace moecl::test
