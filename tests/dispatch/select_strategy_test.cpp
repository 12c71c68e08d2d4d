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

/// The rules of vllm-ascend as its documents say them: `/`-separated conditions in order, one line a machine.
StrategyKind by_the_text(StrategyRules rules, std::int32_t ep, std::int64_t experts, std::int32_t top_k,
                         std::int64_t tokens, std::int64_t capacity) {
  if (ep == 1) return StrategyKind::all_gather;  // EP group size 1: AllGather
  switch (rules) {
    case StrategyRules::a2:  // MC2 if experts/rank <= 24 and EP >= 16 and tokens <= capacity, else AllGather
      return static_cast<double>(experts) / ep <= 24 && ep >= 16 && tokens <= capacity ? StrategyKind::mc2
                                                                                       : StrategyKind::all_gather;
    case StrategyRules::a3:  // MC2 if tokens <= capacity; else AlltoAll
      return tokens <= capacity ? StrategyKind::mc2 : StrategyKind::all2all_v;
    case StrategyRules::a5:  // MC2 if tokens <= capacity and world > 1; else AllGather if world <= top_k; else AlltoAll
      return tokens <= capacity && ep > 1 ? StrategyKind::mc2
             : ep <= top_k                ? StrategyKind::all_gather
                                          : StrategyKind::all2all_v;
    default:  // 310P: AllGather always
      return StrategyKind::all_gather;
  }
}

TEST(SelectStrategyTest, RulesOfVllmAscend) {
  for (const StrategyRules rules : {StrategyRules::a2, StrategyRules::a3, StrategyRules::a5, StrategyRules::p310})
    for (const std::int32_t ep : {1, 2, 8, 9, 15, 16, 17, 64})
      for (const std::int32_t experts : {8, 24 * 16, 24 * 16 + 1, 2048})
        for (const std::int32_t tp : {1, 4})
          for (const std::int64_t tokens : {0, 512 * tp, 512 * tp + 1, 5000}) {
            SelectStrategy problem{ep, tp, tokens};
            problem.rules = rules;
            problem.experts = experts;
            problem.top_k = 8;
            const StrategyChoice choice = select_strategy(problem);
            EXPECT_EQ(choice.kind, by_the_text(rules, ep, experts, 8, tokens, 512 * tp))
                << name(rules) << ", " << ep << " ranks, " << experts << " experts, " << tokens << " tokens";
            if (ep > 1) {
              EXPECT_THAT(choice.reason, testing::StartsWith(std::string("rules ") + name(rules)));
            }
          }
}

TEST(SelectStrategyTest, ReasonsHaveTheNumbers) {
  SelectStrategy problem{8, 1, 600};
  problem.experts = 256;
  problem.top_k = 4;
  const auto reason = [&](StrategyRules rules) {
    problem.rules = rules;
    return select_strategy(problem).reason;
  };
  EXPECT_EQ(reason(StrategyRules::a2),
            "rules a2; 600 tokens on a dp rank exceed MC2's windows of 512; 32 experts a rank, more than 24; 8 ranks, "
            "fewer than 16");
  EXPECT_EQ(
      reason(StrategyRules::a5),
      "rules a5; 600 tokens on a dp rank exceed MC2's windows of 512; 8 ranks, at least 2; 8 ranks, more than the "
      "4 experts of a token");
  EXPECT_EQ(reason(StrategyRules::p310), "rules 310p");
  problem.put_windows = true;
  EXPECT_EQ(reason(StrategyRules::moecl), "rules moecl; kernels store into the memory of all peers");
  EXPECT_EQ(select_strategy(problem).kind, StrategyKind::mc2);
  problem.put_windows = false;
  EXPECT_EQ(select_strategy(problem).kind, StrategyKind::all2all_v);
  problem.top_k = 8;
  EXPECT_EQ(reason(StrategyRules::moecl), "rules moecl; 8 ranks, no more than the 8 experts of a token");
  EXPECT_EQ(select_strategy(problem).kind, StrategyKind::all_gather);
}

TEST(SelectStrategyTest, CapacityOfWindows) {  // min(ceil(m / TP), 512) * TP
  EXPECT_EQ(mc2_tokens_capacity(100, 1), 100);
  EXPECT_EQ(mc2_tokens_capacity(513, 1), 512);
  EXPECT_EQ(mc2_tokens_capacity(101, 4), 104);
  EXPECT_EQ(mc2_tokens_capacity(4096, 4), 2048);
  EXPECT_EQ(mc2_tokens_capacity(4096, 4, 4096), 4096);
  EXPECT_EQ(error_of([] { mc2_tokens_capacity(-1, 1); }).code(), ErrorCode::invalid_argument);
}

TEST(SelectStrategyTest, NamesOfRules) {
  for (const char* text : {"a2", "a3", "a5", "310p", "moecl"}) EXPECT_STREQ(name(strategy_rules_from_name(text)), text);
  EXPECT_THAT(error_of([] { strategy_rules_from_name("a4"); }).what(),
              testing::HasSubstr("'a4' is none of a2, a3, a5, 310p, moecl"));
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
