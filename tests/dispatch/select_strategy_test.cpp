#include <moecl/error.hpp>
#include <moecl/select_strategy.hpp>

#include <gmock/gmock.h>

#include "tests/host/files.hpp"

namespace moecl::test {
namespace {

TEST(SelectStrategyTest, OneRankHasNothingToExchange) {
  const StrategyChoice choice = select_strategy({1, 1, 100000, 512});
  EXPECT_EQ(choice.kind, StrategyKind::all_gather);
  EXPECT_EQ(choice.reason, "one rank: nothing to exchange");
}

TEST(SelectStrategyTest, Mc2WhileTheTokensFitItsWindows) {
  struct Case {
    std::int32_t tp;
    std::int64_t tokens, per_rank;
    StrategyKind kind;
  };
  // A tp group shares its tokens out, so its window is tp times as large.
  for (const Case& c : {Case{1, 0, 512, StrategyKind::mc2}, Case{1, 512, 512, StrategyKind::mc2},
                        Case{1, 513, 512, StrategyKind::all2all_v}, Case{2, 1024, 512, StrategyKind::mc2},
                        Case{2, 1025, 512, StrategyKind::all2all_v}, Case{4, 65, 16, StrategyKind::all2all_v}}) {
    const StrategyChoice choice = select_strategy({4, c.tp, c.tokens, c.per_rank});
    EXPECT_EQ(choice.kind, c.kind) << c.tokens << " tokens, tp " << c.tp;
    EXPECT_THAT(choice.reason, testing::HasSubstr(std::to_string(c.tokens) + " tokens"));
    EXPECT_THAT(choice.reason, testing::HasSubstr("windows of " + std::to_string(c.per_rank * c.tp)));
  }
}

TEST(SelectStrategyTest, UnknownNumbersOfTokensNeedNoWindows) {
  const StrategyChoice choice = select_strategy({4, 1});
  EXPECT_EQ(choice.kind, StrategyKind::all2all_v);
  EXPECT_THAT(choice.reason, testing::HasSubstr("nobody says how many tokens"));
  EXPECT_EQ(select_strategy({1, 1}).kind, StrategyKind::all_gather);
}

TEST(SelectStrategyTest, PartsOfExpertsNeedEveryToken) {
  const StrategyChoice choice = select_strategy({4, 2, 16, 512, ExpertSharding::intermediate});
  EXPECT_EQ(choice.kind, StrategyKind::all_gather);
  EXPECT_THAT(choice.reason, testing::HasSubstr("a part of every expert"));
}

TEST(SelectStrategyTest, NodesAreForMc2) {
  SelectStrategy problem{8, 1, 16};
  problem.ranks_per_node = 4;
  EXPECT_EQ(select_strategy(problem).kind, StrategyKind::mc2);
  EXPECT_THAT(select_strategy(problem).reason, testing::HasSubstr("over 2 nodes of 4 ranks in two levels"));
  problem.wanted = StrategyKind::all2all_v;
  EXPECT_EQ(select_strategy(problem).kind, StrategyKind::all2all_v);
  EXPECT_EQ(select_strategy(problem).reason,
            "asked for; over 2 nodes of 4 ranks as if they were one, since only mc2 has two levels");
  problem.ranks_per_node = 8;
  EXPECT_EQ(select_strategy(problem).reason, "asked for");
  problem.ranks_per_node = 3;
  EXPECT_THAT(error_of([&] { select_strategy(problem); }).what(), testing::HasSubstr("nodes of 3 do not divide 8"));
}

TEST(SelectStrategyTest, RefusesImpossibleProblems) {
  for (const SelectStrategy& problem : {SelectStrategy{0, 1, 1, 1}, SelectStrategy{1, 0, 1, 1},
                                        SelectStrategy{1, 1, -1, 1}, SelectStrategy{1, 1, 1, 0}})
    EXPECT_EQ(error_of([&] { select_strategy(problem); }).code(), ErrorCode::invalid_argument);
}

TEST(SelectStrategyTest, NamesAreThoseOfTheCommand) {
  EXPECT_EQ(strategy_from_name("mc2"), StrategyKind::mc2);
  EXPECT_EQ(strategy_from_name("allgather"), StrategyKind::all_gather);
  EXPECT_EQ(strategy_from_name("all2allv"), StrategyKind::all2all_v);
  EXPECT_EQ(strategy_from_name("multicast"), StrategyKind::multicast);
  EXPECT_THAT(error_of([] { strategy_from_name("walk"); }).what(), testing::HasSubstr("'walk' is none of mc2, "));
}

}  // namespace
}  // namespace moecl::test
