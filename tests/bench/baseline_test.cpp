// What counts as a regression between two results, on documents made by hand.
#include "bench/baseline.hpp"

#include <moecl/error.hpp>

#include <gmock/gmock.h>

namespace moecl::bench {
namespace {

using Json = nlohmann::ordered_json;

/// Repetitions of one benchmark, in microseconds.
Json document(const std::vector<double>& times, const std::string& device = "card", bool slow_mode = false) {
  Json result = {{"context", {{"platform", "P"}, {"device", device}, {"slow_mode", slow_mode}}}};
  for (const double time : times)
    result["benchmarks"].push_back(
        {{"name", "sort/T:16"}, {"run_type", "iteration"}, {"real_time", time}, {"time_unit", "us"}});
  return result;
}

Change change(const std::vector<double>& before, const std::vector<double>& now) {
  return compare(document(before), "old.json", document(now)).at(0);
}

TEST(BaselineTest, MediansThatTakeMoreThanFivePercentLongerRegress) {
  EXPECT_FALSE(change({100, 100, 100}, {104, 104, 104}).regressed());
  const Change longer = change({100, 100, 100}, {106, 106, 106});
  EXPECT_TRUE(longer.regressed());
  EXPECT_EQ(longer.name, "sort/T:16");
  EXPECT_NEAR(longer.before, 100e-6, 1e-12);
  EXPECT_NEAR(longer.now, 106e-6, 1e-12);
  EXPECT_NEAR(longer.longer(), 0.06, 1e-9);
  EXPECT_FALSE(change({106}, {100}).regressed());
}

TEST(BaselineTest, WhatRepetitionsOfEitherRunSpreadOverIsNoise) {
  EXPECT_FALSE(change({90, 100, 110}, {115, 115, 115}).regressed());
  EXPECT_FALSE(change({100, 100, 100}, {105, 115, 130}).regressed());
  EXPECT_TRUE(change({90, 100, 110}, {125, 125, 125}).regressed());
  EXPECT_FALSE(change({100}, {105, 115, 130}).regressed());  // a single run spreads as the other run does
}

TEST(BaselineTest, ReadsEveryUnitAndLeavesOutWhatIsNoRun) {
  Json before = document({100}), now = document({0.1});
  now["benchmarks"][0]["time_unit"] = "ms";
  now["benchmarks"].push_back({{"name", "sort/T:16_mean"}, {"run_type", "aggregate"}});
  now["benchmarks"].push_back({{"name", "gone"}, {"run_type", "iteration"}, {"error_occurred", true}});
  const std::vector<Change> changes = compare(before, "old.json", now);
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_NEAR(changes[0].longer(), 0, 1e-9);
}

TEST(BaselineTest, RefusesWhatCannotBeCompared) {
  const auto refusal = [](const Json& before, const Json& now) -> std::string {
    try {
      compare(before, "old.json", now);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_data);
      return error.what();
    }
    return "none";
  };
  EXPECT_THAT(refusal(document({1}, "other card"), document({1})),
              testing::HasSubstr("measured on device \"other card\", this run on \"card\""));
  EXPECT_THAT(refusal(document({1}, "card", true), document({1})),
              testing::HasSubstr("old.json: the machine was in a slow"));
  EXPECT_THAT(refusal(document({1}), document({1}, "card", true)),
              testing::HasSubstr("this run: the machine was in a slow"));
  EXPECT_THAT(refusal({{"benchmarks", {{{"name", 1}}}}}, document({1})), testing::HasSubstr("old.json: not Google"));
  Json other = document({1});
  other["benchmarks"][0]["name"] = "another";
  EXPECT_THAT(refusal(other, document({1})), testing::HasSubstr("none of the benchmarks"));
}

}  // namespace
}  // namespace moecl::bench
