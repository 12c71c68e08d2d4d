// The error by which an example decides whether it ends well.
#include <gtest/gtest.h>

#include <cmath>

#include "host/examples/example.hpp"

namespace moecl::test {
namespace {

TEST(ExampleErrorTest, IsTheLargestDifferenceOverTheLargestValue) {
  EXPECT_EQ(::relative_error(std::vector<float>{1, 2.5F, -4}, std::vector<float>{1, 2, -4}), 0.125);
}

TEST(ExampleErrorTest, KeepsANaNWhereverItStands) {
  const std::vector<float> expected{1, 2, 4};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    std::vector<float> values{1.5F, 2, 4};
    values[i] = NAN;
    EXPECT_TRUE(std::isnan(::relative_error(values, expected))) << i;
  }
}

}  // namespace
}  // namespace moecl::test
