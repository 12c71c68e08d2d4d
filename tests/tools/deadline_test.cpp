#include "tools/deadline.hpp"

#include <gtest/gtest.h>

namespace moecl::test {
namespace {

using std::chrono::seconds;

TEST(DeadlineTest, BeginsWhatTheMeasurementBeforeSaysWillEnd) {
  const cli::Deadline::Clock::time_point start{};
  cli::Deadline deadline(start, 10);
  EXPECT_TRUE(deadline.begin(start));
  EXPECT_TRUE(deadline.begin(start + seconds(4)));   // took 4 s, 6 are left
  EXPECT_TRUE(deadline.begin(start + seconds(7)));   // took 3 s, 3 are left
  EXPECT_FALSE(deadline.begin(start + seconds(9)));  // took 2 s, 1 is left
}

TEST(DeadlineTest, BeginsNothingWithoutTime) {
  const cli::Deadline::Clock::time_point start{};
  EXPECT_FALSE(cli::Deadline(start, 0).begin(start));
  EXPECT_FALSE(cli::Deadline(start, 5).begin(start + seconds(5)));
}

}  // namespace
}  // namespace moecl::test
