// Placing experts anew by their loads. tests/tools/balance_test.py compares with the published balancers' results.
#include "tests/oracle/balance.hpp"

#include <moecl/balance.hpp>
#include <moecl/error.hpp>

#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <random>
#include <set>

#include "tests/sampling.hpp"

namespace moecl::test {
namespace {

/// Loads of some routers: whole numbers with ties, a heavy tail, or none at all.
BalanceProblem random_problem(std::mt19937_64& random) {
  const auto pick = [&](std::int32_t low, std::int32_t high) {
    return std::uniform_int_distribution<std::int32_t>(low, high)(random);
  };
  BalanceProblem problem;
  problem.nodes = pick(1, 3);
  problem.ranks = problem.nodes * pick(1, 3);
  problem.expert_groups = pick(1, 4) * (pick(0, 2) == 0 ? 1 : problem.nodes);
  problem.experts = problem.expert_groups * pick(1, 4);
  const std::int32_t least = (problem.experts + problem.ranks - 1) / problem.ranks;
  problem.places = problem.ranks * pick(least, least + 2);
  problem.layers = pick(1, 2);
  problem.loads.resize(static_cast<std::size_t>(problem.layers * problem.experts));
  const int kind = pick(0, 3);
  for (double& load : problem.loads) {
    load = kind == 0   ? pick(0, 3)
           : kind == 1 ? std::exp(std::normal_distribution<double>(3, 2)(random))
           : kind == 2 ? pick(0, 1 << 26)
                       : 0;
  }
  return problem;
}

TEST(BalanceTest, DeepseekIsThePublishedAlgorithm) {
  std::mt19937_64 random(1);
  const int problems = all_cases() ? 1000000 : 10000;
  int hierarchical = 0;
  for (int i = 0; i < problems; ++i) {
    const BalanceProblem problem = random_problem(random);
    hierarchical += problem.nodes > 1 && problem.expert_groups % problem.nodes == 0;
    ASSERT_EQ(balance(BalancePolicy::deepseek, problem).logical_of, oracle::deepseek_eplb(problem))
        << "problem " << i << ": " << problem.experts << " experts in " << problem.expert_groups << " groups, "
        << problem.places << " places, " << problem.ranks << " ranks, " << problem.nodes << " nodes";
  }
  EXPECT_GT(hierarchical, problems / 10);
}

TEST(BalanceTest, EveryPolicyPlacesEveryExpertAndCountsWhatItDid) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 200; ++i) {
    BalanceProblem problem = random_problem(random);
    const auto places = static_cast<std::size_t>(problem.places);
    for (std::size_t p = 0; p < static_cast<std::size_t>(problem.layers) * places; ++p)
      problem.current.push_back(static_cast<std::int32_t>(p % places) % problem.experts);
    for (const BalancePolicy policy : {BalancePolicy::deepseek, BalancePolicy::vllm, BalancePolicy::moecl}) {
      SCOPED_TRACE(testing::Message() << "problem " << i << ", " << name(policy));
      const Balanced found = balance(policy, problem);
      ASSERT_EQ(found.logical_of.size(), problem.current.size());
      std::int64_t moves = 0;
      double load = 0;
      for (std::size_t layer = 0; layer < static_cast<std::size_t>(problem.layers); ++layer) {
        const auto row = found.logical_of.begin() + static_cast<std::ptrdiff_t>(layer * places);
        EXPECT_EQ(std::set<std::int32_t>(row, row + problem.places).size(), static_cast<std::size_t>(problem.experts));
        double fullest = 0;
        const std::ptrdiff_t each = problem.places / problem.ranks;
        for (std::ptrdiff_t first = 0; first < problem.places; first += each) {
          const auto old = problem.current.begin() + static_cast<std::ptrdiff_t>(layer * places) + first;
          const std::set<std::int32_t> had(old, old + each), has(row + first, row + first + each);
          moves += std::count_if(has.begin(), has.end(), [&](std::int32_t e) { return had.count(e) == 0; });
          double of_rank = 0;
          for (auto expert = row + first; expert < row + first + each; ++expert) {
            const double all =
                problem.loads[layer * static_cast<std::size_t>(problem.experts) + static_cast<std::size_t>(*expert)];
            of_rank += all / static_cast<double>(std::count(row, row + problem.places, *expert));
          }
          fullest = std::max(fullest, of_rank);
        }
        load += fullest;
      }
      EXPECT_EQ(found.moves, moves);
      EXPECT_NEAR(found.load, load, 1e-6 * load);
      if (policy == BalancePolicy::moecl) {
        EXPECT_LE(found.load, found.load_before * (1 + 1e-12));
      }
    }
  }
}

// FlashLB's example: the default balancer gives 232, FlashLB 205. 196.67 is the optimum where places share equally.
TEST(BalanceTest, OwnPolicyFindsTheOptimumOfThePublishedExample) {
  BalanceProblem problem;
  problem.experts = 8, problem.places = 16, problem.ranks = 8;
  problem.loads = {600, 560, 120, 120, 20, 10, 10, 10};
  const Balanced found = balance(BalancePolicy::moecl, problem);
  EXPECT_LE(found.load, balance(BalancePolicy::deepseek, problem).load);
  EXPECT_NEAR(found.load, 590.0 / 3, 0.01);
  problem.current = found.logical_of;
  EXPECT_EQ(balance(BalancePolicy::moecl, problem).moves, 0);
}

TEST(BalanceTest, RefusesWhatCannotBe) {
  const auto refused = [](const char* text, const std::function<void(BalanceProblem&)>& spoil,
                          BalancePolicy policy = BalancePolicy::deepseek) {
    BalanceProblem problem;
    problem.experts = 2, problem.places = 4, problem.ranks = 2;
    problem.loads = {1, 2};
    spoil(problem);
    try {
      balance(policy, problem);
      ADD_FAILURE() << "not refused: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), testing::HasSubstr(text));
    }
  };
  refused("got 0 layers", [](BalanceProblem& p) { p.layers = 0; });
  refused("3 ranks do not divide 4 places", [](BalanceProblem& p) { p.ranks = 3; });
  refused("expected at least 5 places", [](BalanceProblem& p) { p.experts = 5; });
  refused("loads: expected 2 numbers", [](BalanceProblem& p) { p.loads.pop_back(); });
  refused("got -1 at 1", [](BalanceProblem& p) { p.loads[1] = -1; });
  refused("got nan at 0", [](BalanceProblem& p) { p.loads[0] = std::nan(""); });
  refused("current: expected 4 experts", [](BalanceProblem& p) { p.current = {0, 1}; });
  refused("expert 1 has no place in layer 0", [](BalanceProblem& p) { p.current = {0, 0, 0, 0}; });
  refused("place 3 of layer 0 is free", [](BalanceProblem& p) { p.current = {0, 1, 1, -1}; });
  refused(
      "current: expected 4 experts", [](BalanceProblem&) {}, BalancePolicy::ascend_swift);
  EXPECT_THROW(balance_policy_from_name("nobody"), Error);
  EXPECT_EQ(balance_policy_from_name("flashlb"), BalancePolicy::flashlb);
}

}  // namespace
}  // namespace moecl::test
