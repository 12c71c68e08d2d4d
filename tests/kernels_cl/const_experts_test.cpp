#include <moecl/const_experts.hpp>
#include <moecl/error.hpp>

#include <gmock/gmock.h>

#include "tests/devices.hpp"
#include "tests/oracle/edge_cases.hpp"

namespace moecl::test {
namespace {

class ConstExpertsTest : public OnEveryDevice {
 protected:
  GuardedTensor tensor(DType dtype, std::initializer_list<std::int64_t> shape,
                       const std::vector<double>& values) const {
    return {device(), dtype, shape, encode(dtype, values)};
  }
};
MOECL_ON_EVERY_DEVICE(ConstExpertsTest);

float f32(double value) { return static_cast<float>(value); }

TEST_P(ConstExpertsTest, AgreesWithTheDefinition) {
  std::uint64_t seed = 0;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const std::int64_t tokens : row_counts)
      for (const std::int64_t hidden : widths)
        for (const std::int64_t experts : {1, 3})
          for (const bool wide : {false, true}) {
            SCOPED_TRACE(testing::Message() << name(dtype) << "[" << tokens << ", " << hidden << "], " << experts
                                            << (wide ? " experts with alphas for each column" : " experts"));
            const auto random = [&](std::int64_t count) {
              return rounded(dtype, normal(static_cast<std::size_t>(count), ++seed));
            };
            const std::vector<double> x = random(tokens * hidden), v = random(experts * hidden),
                                      a = random(experts * (wide ? hidden : 1)),
                                      b = random(experts * (wide ? hidden : 1));
            const GuardedTensor x_on = tensor(dtype, {tokens, hidden}, x), v_on = tensor(dtype, {experts, hidden}, v),
                                rows(device(), DType::f32, {(1 + experts) * tokens, hidden});
            const GuardedTensor a_on = wide ? tensor(dtype, {experts, hidden}, a) : tensor(dtype, {experts}, a),
                                b_on = wide ? tensor(dtype, {experts, hidden}, b) : tensor(dtype, {experts}, b);
            const_experts::enqueue(device().stream, {x_on, a_on, b_on, v_on, rows});
            const std::vector<float> got = rows.read<float>();
            for (std::int64_t i = 0; i < static_cast<std::int64_t>(got.size()); ++i) {
              const std::int64_t h = i % hidden, t = i / hidden % tokens, c = i / hidden / tokens - 1;
              const double from = x[static_cast<std::size_t>(t * hidden + h)];
              double expected = from;
              if (c >= 0) {
                const auto alpha = static_cast<std::size_t>(wide ? c * hidden + h : c);
                expected = f32(double{f32(a[alpha] * from)} +
                               double{f32(b[alpha] * v[static_cast<std::size_t>(c * hidden + h)])});
              }
              ASSERT_EQ(got[static_cast<std::size_t>(i)], f32(expected)) << "element " << i;
            }
          }
}

TEST_P(ConstExpertsTest, ReadsStridedRows) {
  const std::vector<double> values = rounded(DType::f32, normal(3 * 20, 1));
  const GuardedTensor x = tensor(DType::f32, {3, 20}, values), one = tensor(DType::f32, {1}, {1}),
                      zero = tensor(DType::f32, {1}, {0}), v = tensor(DType::f32, {1, 17}, normal(17, 2)),
                      rows(device(), DType::f32, {6, 17});
  TensorView narrow = x;
  narrow.shape[1] = 17;
  const_experts::enqueue(device().stream, {narrow, one, zero, v, rows});
  const std::vector<float> got = rows.read<float>();
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], f32(values[i / 17 % 3 * 20 + i % 17])) << i;
}

TEST_P(ConstExpertsTest, RefusesWrongArguments) {
  const GuardedTensor x(device(), DType::f32, {3, 8}), alpha(device(), DType::f32, {2}),
      v(device(), DType::f32, {2, 8}), halves(device(), DType::f16, {2, 8}), rows(device(), DType::f32, {9, 8});
  const auto reason = [&](const_experts::Args args) { return const_experts::reject(args, device().record()); };
  EXPECT_EQ(reason({x, alpha, alpha, v, rows}), "");
  EXPECT_EQ(reason({x, v, v, v, rows}), "");
  EXPECT_THAT(reason({alpha, alpha, alpha, v, rows}), testing::HasSubstr("x: expected float [T, H]"));
  EXPECT_THAT(reason({x, alpha, v, v, rows}), testing::HasSubstr("alpha: expected"));
  EXPECT_THAT(reason({x, halves, halves, v, rows}), testing::HasSubstr("alpha: expected f32[2] or [2, 8]"));
  EXPECT_THAT(reason({x, alpha, alpha, halves, rows}), testing::HasSubstr("v: expected f32[C, 8]"));
  EXPECT_THAT(reason({x, alpha, alpha, v, x}), testing::HasSubstr("rows: expected f32[9, 8]"));
  EXPECT_THROW(const_experts::enqueue(device().stream, {x, alpha, v, v, rows}), Error);
}

}  // namespace
}  // namespace moecl::test
