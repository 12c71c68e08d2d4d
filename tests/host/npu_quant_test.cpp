#include <moecl/error.hpp>

#include <gmock/gmock.h>

#include "host/npu/describe_quant.hpp"
#include "tests/host/npu_property.hpp"
#include "tests/oracle/quantize_rows.hpp"

namespace moecl::test {
namespace {

class NpuQuantTest : public OnEveryDevice {
 protected:
  /// Random inputs for `args`, and the oracle's outputs for them: y, scale and, if asymmetric, offset.
  template <class Args>
  void check(Args args, quantize_rows::Rounding rounding, quantize_rows::Scheme scheme, std::mt19937_64& engine) {
    const bool exact = device().caps().correctly_rounded_divide,
               asymmetric = scheme == quantize_rows::Scheme::asymmetric;
    const bool int4 = exact && between(engine, 0, 2) == 0;
    const DType dtype = one_of<DType>(engine, {DType::bf16, DType::f16});
    const std::int64_t a = between(engine, 0, 4), b = between(engine, 1, 3), rows = a * b;
    const std::int64_t width = int4 ? 8 * between(engine, 1, 5) : between(engine, 1, 40);
    if (int4) args.dst_type = npu::QuantType::quint4x2;

    // Half of the rows have a scale of 1 and multiples of 1/2, so that many are ties; one row is zero.
    std::vector<double> x = normal(static_cast<std::size_t>(rows * width), engine());
    const double levels = int4 ? 7 : 127;
    for (std::int64_t r = 0; r < rows; r += 2)
      for (std::int64_t h = 0; h < width; ++h)
        x[static_cast<std::size_t>(r * width + h)] =
            h == 0 ? levels : static_cast<double>(between(engine, int4 ? -13 : -127, int4 ? 13 : 127)) / 2;
    if (rows > 3) std::fill_n(x.begin() + 3 * width, width, 0.0);
    x = rounded(dtype, x);
    const GuardedTensor device_x = upload(device(), dtype, {a, b, width}, x);
    args.x = device_x;

    const std::int64_t groups = between(engine, 0, 2) == 0 ? between(engine, 1, 4) : 0;
    const bool smooth = groups != 0 || between(engine, 0, 2) == 0;
    std::vector<double> ends;
    for (std::int64_t g = 0; g < groups; ++g)
      ends.push_back(static_cast<double>(
          g + 1 == groups ? rows : between(engine, ends.empty() ? 0 : static_cast<std::int64_t>(ends.back()), rows)));
    const std::vector<double> factors =
        rounded(dtype, normal(static_cast<std::size_t>(std::max<std::int64_t>(groups, 1) * width), engine()));
    const GuardedTensor shared = upload(device(), dtype, {width}, {factors.begin(), factors.begin() + width}),
                        grouped = upload(device(), dtype, {std::max<std::int64_t>(groups, 1), width}, factors),
                        group_index = upload(device(), one_of<DType>(engine, {DType::i32, DType::i64}), {groups}, ends);
    if (smooth) args.smooth_scales = groups != 0 ? grouped.view() : shared.view();
    if (groups != 0) args.group_index = group_index;

    Expected y{{}, {}, exact ? 0.0 : 1.0, 0}, scale{{}, {}, 0, exact ? 0 : 3e-7},
        offset{{}, {}, exact ? 0 : 3e-5, exact ? 0 : 3e-6};
    std::size_t group = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      while (groups != 0 && ends[group] <= static_cast<double>(r)) ++group;
      std::vector<double> row(x.begin() + r * width, x.begin() + (r + 1) * width);
      for (std::size_t h = 0; smooth && h < row.size(); ++h)
        row[h] = static_cast<float>(row[h]) * static_cast<float>(factors[group * row.size() + h]);
      const oracle::QuantizedRow q = oracle::quantize_row(row, rounding, scheme, static_cast<float>(levels));
      scale.values.push_back(q.scale);
      offset.values.push_back(q.offset);
      for (std::size_t h = 0; h < row.size(); h += int4 ? 8 : 1) {
        std::uint32_t word = 0;
        for (std::size_t i = 0; int4 && i < 8; ++i) word |= (static_cast<std::uint32_t>(q.q[h + i]) & 15U) << (4 * i);
        y.values.push_back(int4 ? static_cast<std::int32_t>(word) : q.q[h]);
      }
    }
    SCOPED_TRACE(testing::Message() << name(dtype) << "[" << a << ", " << b << ", " << width << "], int4 " << int4
                                    << ", groups " << groups << ", smooth " << smooth);
    expect_outputs(device(), args,
                   asymmetric ? std::vector<Expected>{y, scale, offset} : std::vector<Expected>{y, scale});
  }
};
MOECL_ON_EVERY_DEVICE(NpuQuantTest);

TEST_P(NpuQuantTest, DynamicQuantAgreesWithTheOracleInEveryTemplate) {
  using npu::DynamicQuantRounding;
  using quantize_rows::Rounding;
  const std::vector<std::pair<DynamicQuantRounding, Rounding>> templates = {
      {DynamicQuantRounding::divide, Rounding::divide},
      {DynamicQuantRounding::divide_by_mulscale, Rounding::divide_scaled},
      {DynamicQuantRounding::plain_template, Rounding::multiply_127_by_amax},
      {DynamicQuantRounding::multirow_template, Rounding::multiply_127_by_amax_scaled}};
  for (int i = 0; i < property_cases(device()); ++i) {
    std::mt19937_64 engine(static_cast<std::uint64_t>(i));
    const auto& [choice, rule] = one_of(engine, templates);
    SCOPED_TRACE(testing::Message() << "case " << i << ", rounding " << static_cast<int>(choice));
    npu::DynamicQuantArgs args;
    args.rounding = choice;
    check(args, rule, quantize_rows::Scheme::symmetric, engine);
    if (HasFatalFailure()) return;
  }
}

TEST_P(NpuQuantTest, DynamicQuantToFp8) {
  if (!device().caps().correctly_rounded_divide) GTEST_SKIP() << "quotients next to a tie may go either way";
  using quantize_rows::Codes;
  constexpr std::int64_t rows = 6, width = 40;
  const std::vector<double> x = rounded(DType::bf16, normal(rows * width, 3)),
                            factors = rounded(DType::bf16, normal(2 * width, 4));
  const GuardedTensor device_x = upload(device(), DType::bf16, {2, 3, width}, x),
                      smooth = upload(device(), DType::bf16, {2, width}, factors),
                      ends = upload(device(), DType::i64, {2}, {4, rows});
  for (const auto& [type, codes] :
       {std::pair{npu::QuantType::float8_e4m3fn, Codes::e4m3}, std::pair{npu::QuantType::float8_e5m2, Codes::e5m2}}) {
    npu::DynamicQuantArgs args;
    args.x = device_x;
    args.smooth_scales = smooth;
    args.group_index = ends;
    args.dst_type = type;
    Expected y, scale;
    for (std::int64_t r = 0; r < rows; ++r) {
      std::vector<double> row(x.begin() + r * width, x.begin() + (r + 1) * width);
      for (std::int64_t h = 0; h < width; ++h)
        row[static_cast<std::size_t>(h)] = static_cast<float>(
            row[static_cast<std::size_t>(h)] * factors[static_cast<std::size_t>((r < 4 ? 0 : width) + h)]);
      const oracle::FloatRow made = oracle::quantize_row_to_floats(row, {codes});
      y.values.insert(y.values.end(), made.q.begin(), made.q.end());
      scale.values.insert(scale.values.end(), made.scale.begin(), made.scale.end());
    }
    expect_outputs(device(), args, {y, scale});
  }
}

TEST_P(NpuQuantTest, DynamicQuantAsymmetricAgreesWithTheOracle) {
  for (int i = 0; i < property_cases(device()); ++i) {
    std::mt19937_64 engine(static_cast<std::uint64_t>(i));
    SCOPED_TRACE(testing::Message() << "case " << i);
    check(npu::DynamicQuantAsymmetricArgs{}, quantize_rows::Rounding::divide, quantize_rows::Scheme::asymmetric,
          engine);
    if (HasFatalFailure()) return;
  }
}

TEST_P(NpuQuantTest, RefusesWhatCannotBeQuantized) {
  const GuardedTensor x(device(), DType::f16, {3, 9}), ints(device(), DType::i32, {3, 9}),
      smooth(device(), DType::f16, {2, 9}), ends(device(), DType::i32, {3});
  const auto refusal = [&](const auto& change) {
    npu::DynamicQuantArgs args;
    args.x = x;
    change(args);
    return refusal_of(args, device());
  };
  EXPECT_EQ(refusal([](auto&) {}), "");
  EXPECT_THAT(refusal([&](auto& args) { args.x = ints; }), testing::HasSubstr("got i32[3, 9]"));
  EXPECT_THAT(refusal([&](auto& args) { args.dst_type = npu::QuantType::quint4x2; }),
              testing::HasSubstr("packed by eight, but rows have 9 columns"));
  EXPECT_THAT(refusal([&](auto& args) { args.smooth_scales = smooth; }),
              testing::HasSubstr("smooth: expected [9] or [0, 9]"));
  EXPECT_THAT(refusal([&](auto& args) { args.smooth_scales = smooth, args.group_index = ends; }),
              testing::HasSubstr("expected [3, H] for the groups of group_index, got f16[2, 9]"));
}

}  // namespace
}  // namespace moecl::test
