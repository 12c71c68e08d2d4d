#include "tests/cases/row_differences.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <utility>

#include "tests/kernels_cl/operator_test.hpp"

namespace moecl::test {
namespace {

class RowDifferencesTest : public OperatorTest<RowDifferencesCase> {};
MOECL_ON_EVERY_DEVICE(RowDifferencesTest);

TEST_P(RowDifferencesTest, EveryWidthRowCountAndType) {
  for (const std::int64_t width : widths)
    for (const std::int64_t rows : row_counts)
      for (const auto& [of_x, of_y] : {std::pair(DType::f32, DType::f32), std::pair(DType::bf16, DType::f32),
                                       std::pair(DType::f16, DType::bf16)}) {
        const auto size = static_cast<std::size_t>(rows * width);
        check({width, normal(size, 1), normal(size, 2), of_x, of_y});
      }
}

TEST_P(RowDifferencesTest, RowsApartAndWhatIsNoNumber) {
  constexpr double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const GuardedTensor x = upload(device(), DType::f32, {3, 4}, {1, -2, 9, 9, nan, -infinity, 9, 9, -infinity, 0, 9, 9}),
                      y = upload(device(), DType::f32, {3, 2}, {1, -2, 0, 0, 0, 0}), out(device(), DType::f32, {3, 4});
  TensorView apart = x;
  apart.shape[1] = 2;
  row_differences::enqueue(device().stream, {apart, y, out});
  const std::vector<double> found = out.values();
  EXPECT_THAT(std::vector<double>(found.begin(), found.begin() + 4), testing::ElementsAre(2, 0, 5, 0));
  EXPECT_TRUE(std::isnan(found[4]));
  EXPECT_EQ(found[8], infinity);
}

TEST_P(RowDifferencesTest, SaysWhatDoesNotFit) {
  const GuardedTensor x(device(), DType::f32, {3, 5}), y(device(), DType::f32, {3, 4}),
      codes(device(), DType::i8, {3, 5}), out(device(), DType::f32, {3, 4});
  const auto reason = [&](const row_differences::Args& args) {
    return row_differences::reject(args, {}, device().record());
  };
  EXPECT_THAT(reason({codes, x, out}), testing::HasSubstr("x: expected float [N, K], got i8[3, 5]"));
  EXPECT_THAT(reason({x, y, out}), testing::HasSubstr("y: expected float [3, 5], got f32[3, 4]"));
  EXPECT_THAT(reason({x, x, x}), testing::HasSubstr("out: expected contiguous f32 [3, 4]"));
  EXPECT_EQ(reason({x, x, out}), "");
}

}  // namespace
}  // namespace moecl::test
