#include "tools/deadline.hpp"

#include <gtest/gtest.h>

#include <future>

namespace moecl::test {
namespace {

using std::chrono::seconds;

TEST(DeadlineTest, BeginsWhatTheLongestMeasurementSaysWillEnd) {
  const cli::Deadline::Clock::time_point start{};
  cli::Deadline deadline(start, 10);
  EXPECT_TRUE(deadline.begin(start));
  EXPECT_TRUE(deadline.begin(start + seconds(4)));   // took 4 s, 6 are left
  EXPECT_TRUE(deadline.begin(start + seconds(6)));   // took 2 s, 4 are left
  EXPECT_FALSE(deadline.begin(start + seconds(7)));  // took 1 s, 3 are left, the longest took 4
}

TEST(DeadlineTest, BeginsNothingWithoutTime) {
  const cli::Deadline::Clock::time_point start{};
  EXPECT_FALSE(cli::Deadline(start, 0).begin(start));
  EXPECT_FALSE(cli::Deadline(start, 5).begin(start + seconds(5)));
}

TEST(AlarmTest, RingsAtItsTime) {
  std::promise<void> rung;
  const cli::Alarm alarm(cli::Deadline::Clock::now() + std::chrono::milliseconds(1), [&rung] { rung.set_value(); });
  EXPECT_EQ(rung.get_future().wait_for(seconds(60)), std::future_status::ready);
}

TEST(AlarmTest, IsOffOnceDestroyed) {
  bool rung = false;
  {
    const cli::Alarm alarm(cli::Deadline::Clock::now() + seconds(3600), [&rung] { rung = true; });
  }
  EXPECT_FALSE(rung);
}

}  // namespace
}  // namespace moecl::test
