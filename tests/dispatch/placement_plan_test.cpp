#include <moecl/error.hpp>
#include <moecl/placement_plan.hpp>

#include <gmock/gmock.h>

#include "tests/host/files.hpp"

namespace moecl::test {
namespace {

using Ints = std::vector<std::int32_t>;
using testing::HasSubstr;

TEST(ExpertMapTest, RemaindersGoToTheFirstRanks) {
  Ints sizes;
  for (std::int32_t rank = 0; rank < 8; ++rank)
    sizes.push_back(static_cast<std::int32_t>(ExpertMap::make(30, 8, rank, ExpertPlacement::linear).global_of.size()));
  EXPECT_EQ(sizes, (Ints{4, 4, 4, 4, 4, 4, 3, 3}));
  const ExpertMap map = ExpertMap::make(9, 2, 0, ExpertPlacement::round_robin);
  EXPECT_EQ(map.local_of, (Ints{0, -1, 1, -1, 2, -1, 3, -1, 4}));
  EXPECT_EQ(map.mask, (Ints{1, 0, 1, 0, 1, 0, 1, 0, 1, 0}));
}

TEST(ExpertMapTest, FusedSharedExpertsAreEverybodys) {
  const ExpertMap map = ExpertMap::make(5, 2, 1, ExpertPlacement::linear, 2);
  EXPECT_EQ(map.global_of, (Ints{3, 4, 5, 6}));
  EXPECT_EQ(map.local_of, (Ints{-1, -1, -1, 0, 1, 2, 3}));
  EXPECT_EQ(map.mask, (Ints{0, 0, 0, 1, 1, 1, 1, 0}));
}

TEST(PlacementPlanTest, LinearPlacesAreTheExperts) {
  const PlacementPlan plan = place_experts({9, 2});
  EXPECT_TRUE(plan.is_identity());
  EXPECT_EQ(plan.logical_of, (Ints{0, 1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(plan.physical_of, plan.logical_of);
  EXPECT_EQ(plan.replicas, Ints(9, 1));
}

TEST(PlacementPlanTest, RoundRobinDealsExpertsOut) {
  const PlacementPlan plan = place_experts({9, 2, 3, 0, ExpertPlacement::round_robin});
  EXPECT_EQ(plan.placement, ExpertPlacement::round_robin);
  EXPECT_THAT(plan.reason, HasSubstr("3 expert groups"));
  EXPECT_FALSE(plan.is_identity());
  EXPECT_EQ(plan.logical_of, (Ints{0, 2, 4, 6, 8, 1, 3, 5, 7}));
  EXPECT_EQ(plan.physical_of, (Ints{0, 5, 1, 6, 2, 7, 3, 8, 4}));
}

TEST(PlacementPlanTest, PlansMadeByHandAreChecked) {
  for (const PlaceExperts& problem : {PlaceExperts{9, 2, 3, 0, ExpertPlacement::round_robin}, PlaceExperts{6, 4, 1, 2}})
    place_experts(problem).check();
  const auto refused = [](const std::function<void(PlacementPlan&)>& spoil) {
    PlacementPlan plan = place_experts({6, 4, 1, 2});
    spoil(plan);
    return std::string(error_of([&] { plan.check(); }).what());
  };
  EXPECT_THAT(refused([](PlacementPlan& p) { p.logical_of[2] = 6; }), HasSubstr("place 2 holds expert 6 of 6"));
  EXPECT_THAT(refused([](PlacementPlan& p) { p.logical_of[2] = -1; }), HasSubstr("place 2 holds expert -1 of 6"));
  EXPECT_THAT(refused([](PlacementPlan& p) { p.logical_of[2] = 0; }), HasSubstr("expert 2 has no place"));
  EXPECT_THAT(refused([](PlacementPlan& p) { p.replicas[5] = 2; }), HasSubstr("replicas"));
  EXPECT_THAT(refused([](PlacementPlan& p) { p.most_replicas = 3; }), HasSubstr("most_replicas 3"));
  EXPECT_THAT(refused([](PlacementPlan& p) { p.physical_of.resize(6); }),
              HasSubstr("physical_of has 6 entries, expected [6, 2]"));
  EXPECT_THAT(refused([](PlacementPlan& p) { std::swap(p.physical_of[0], p.physical_of[2]); }),
              HasSubstr("physical_of is not where"));
  EXPECT_THAT(refused([](PlacementPlan& p) { p.replicas.clear(); }), HasSubstr("expert 0 of 0"));
}

TEST(PlacementPlanTest, RoundRobinFallsBackToLinearAndSaysWhy) {
  struct Case {
    PlaceExperts problem;
    const char* reason;
  };
  for (const Case& c :
       {Case{{8, 1, 4, 0, ExpertPlacement::round_robin}, "instead of round_robin: the experts are not divided"},
        Case{{8, 2, 4, 2, ExpertPlacement::round_robin}, "instead of round_robin: redundant experts"},
        Case{{8, 2, 1, 0, ExpertPlacement::round_robin}, "the router has no expert groups"}}) {
    const PlacementPlan plan = place_experts(c.problem);
    EXPECT_EQ(plan.placement, ExpertPlacement::linear);
    EXPECT_THAT(plan.reason, HasSubstr(c.reason));
  }
}

TEST(PlacementPlanTest, RedundantExpertsAreCopiesOfTheFirstOnes) {
  const PlacementPlan plan = place_experts({6, 2, 1, 2});
  EXPECT_EQ(plan.physical(), 8);
  EXPECT_EQ(plan.logical_of, (Ints{0, 1, 2, 3, 4, 5, 0, 1}));
  EXPECT_EQ(plan.most_replicas, 2);
  EXPECT_EQ(plan.physical_of, (Ints{0, 6, 1, 7, 2, -1, 3, -1, 4, -1, 5, -1}));
  EXPECT_EQ(plan.replicas, (Ints{2, 2, 1, 1, 1, 1}));
  const PlacementPlan around = place_experts({3, 4, 1, 5});  // more copies than experts
  EXPECT_EQ(around.logical_of, (Ints{0, 1, 2, 0, 1, 2, 0, 1}));
  EXPECT_EQ(around.physical_of, (Ints{0, 3, 6, 1, 4, 7, 2, 5, -1}));
}

TEST(PlacementPlanTest, SharesFollowRates) {
  const auto shares = [](std::int32_t experts, const std::vector<double>& rates) {
    return shares_by_rates(experts, rates);
  };
  EXPECT_EQ(shares(16, {1, 1}), (Ints{8, 8}));
  EXPECT_EQ(shares(16, {3, 1}), (Ints{12, 4}));
  EXPECT_EQ(shares(8, {0, 5, 0}), (Ints{0, 8, 0}));
  EXPECT_EQ(shares(10, {1, 1, 1}), (Ints{4, 3, 3}));  // remainders that are equal go to the first
  EXPECT_EQ(shares(7, {1, 2, 1}), (Ints{2, 3, 2}));   // 1.75, 3.5, 1.75
  EXPECT_EQ(shares(4, {1e300, 1e300}), (Ints{2, 2}));
  EXPECT_EQ(shares(256, {4700, 210}), (Ints{245, 11}));  // 245.05, 10.95
  for (const std::vector<double>& rates : {std::vector<double>{}, {0, 0}, {1, -1}, {1, NAN}, {1, INFINITY}})
    EXPECT_EQ(error_of([&] { shares(4, rates); }).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(error_of([&] { shares(0, {1}); }).code(), ErrorCode::invalid_argument);
}

TEST(PlacementPlanTest, PlacesBeyondAShareAreFree) {
  const PlacementPlan plan = place_in_shares({3, 1, 0});
  EXPECT_EQ(plan.logical_of, (Ints{0, 1, 2, 3, -1, -1, -1, -1, -1}));
  EXPECT_EQ(plan.logical(), 4);
  EXPECT_EQ(plan.gone(), Ints());
  EXPECT_EQ(plan.reason, "shares of 3, 1, 0 experts");
  EXPECT_TRUE(place_in_shares({2, 2}).is_identity());
  for (const Ints& shares : {Ints{}, Ints{0, 0}, Ints{5, -1}})
    EXPECT_EQ(error_of([&] { place_in_shares(shares); }).code(), ErrorCode::invalid_argument);
}

TEST(PlacementPlanTest, RefusesWhatCannotBePlaced) {
  for (const PlaceExperts& problem : {PlaceExperts{0, 1}, PlaceExperts{1, 0}, PlaceExperts{1, 1, 0},
                                      PlaceExperts{1, 1, 1, -1}, PlaceExperts{6, 4, 1, 1}})
    EXPECT_EQ(error_of([&] { place_experts(problem); }).code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error_of([] {
                place_experts({6, 4, 1, 1});
              }).what(),
              HasSubstr("6 and 1 of them do not have equal shares of 4 ranks"));
  EXPECT_EQ(placement_from_name("round_robin"), ExpertPlacement::round_robin);
  EXPECT_THAT(error_of([] { placement_from_name("walk"); }).what(), HasSubstr("'walk' is none of linear"));
}

}  // namespace
}  // namespace moecl::test
