// What dispatch and combine refuse, and which ranks get an error: bad routing, another call's assist info, ranks that
// disagree.
#include <gmock/gmock.h>

#include <new>

#include "host/npu/distribute.hpp"
#include "tests/host/files.hpp"
#include "tests/host/npu_distribute_problem.hpp"

namespace moecl::test {
namespace {

class NpuDistributeRefusalsTest : public NpuDistributeGroups {};
INSTANTIATE_TEST_SUITE_P(Places, NpuDistributeRefusalsTest, testing::ValuesIn(settings),
                         [](const auto& param) { return std::string(param.param.name); });

/// Two ranks with four experts, two tokens each, top 2.
DistributeProblem small_problem() {
  DistributeProblem problem(0);
  problem.group = {};
  problem.group.experts = 4;
  problem.group.top_k = 2;
  problem.group.hidden = 8;
  problem.global_bs = problem.quant_mode = problem.comm_quant_mode = 0;
  problem.nums_type = 1;
  problem.mask_rank = 0;
  problem.smooth = problem.shared_x = problem.first_version = problem.weighted = false;
  problem.y_dtype.reset();
  problem.y_codes = npu::RowCodeType::none;
  problem.scales = Values(32);
  problem.alpha_1 = problem.alpha_2 = problem.v = {};
  problem.shared_rows = {Values(16), Values(16)};
  for (int rank = 0; rank < 2; ++rank)
    problem.group.ranks.push_back(
        {2, {0, 3, 1, 2}, {true, true, true, true}, {true, true}, Values(16, 1), Values(4, 1)});
  return problem;
}

NamedValues dispatch_small(Communicator& world, const DistributeProblem& problem) {
  const DistributeInputs in(world.stream(), problem, world.rank());
  return dispatch_on<npu::MoeDistributeDispatchV2Args>(world, problem, in);
}

TEST_P(NpuDistributeRefusalsTest, StrictModeReportsBadRouting) {
  const auto refuses = [&](const DistributeProblem& problem, const char* text) {
    Ranks on(2, GetParam().places, {std::chrono::milliseconds(30000), GetParam().transport});
    try {
      on.group.run([&](Communicator& world) { dispatch_small(world, problem); });
      ADD_FAILURE() << "expected: " << text;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(text));
    }
  };
  DistributeProblem repeated = small_problem();
  repeated.group.ranks[1].ids = {0, 3, 2, 2};
  refuses(repeated, "slot 3 asks for expert 2, as an earlier slot of its token does");
  DistributeProblem outside = small_problem();
  outside.group.ranks[0].ids = {0, 4, 1, 2};
  refuses(outside, "slot 1 asks for expert 4, which does not exist");
  DistributeProblem holes = small_problem();
  holes.mask_rank = 1;
  holes.group.ranks[0].active = {false, true};
  refuses(holes, "active tokens must come first");
}

TEST_P(NpuDistributeRefusalsTest, StrictCombineRefusesAnotherCallsInfo) {
  Ranks on(2, GetParam().places, {std::chrono::milliseconds(30000), GetParam().transport});
  const DistributeProblem problem = small_problem();
  DistributeProblem other = problem;
  other.group.ranks[1].ids = {0, 3, 2, 1};  // the same counts
  try {
    on.group.run([&](Communicator& world) {
      const DistributeInputs in(world.stream(), problem, world.rank()), now(world.stream(), other, world.rank());
      const NamedValues dispatched = dispatch_on<npu::MoeDistributeDispatchV2Args>(world, problem, in);
      combine_on<npu::MoeDistributeCombineV2Args>(world, other, now, dispatched, Values(8 * 8));
    });
    ADD_FAILURE() << "the info of another call was taken";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("is not of the dispatch with these expert ids"));
  }
}

TEST_P(NpuDistributeRefusalsTest, EveryRankHearsOfDisagreementAndTheGroupGoesOn) {
  GroupOfRanks& on = group(2);
  const auto all_hear = [&](auto spoil, const char* first, const char* second) {
    std::vector<std::string> texts(2);
    on.run([&](Communicator& world) {
      DistributeProblem mine = small_problem();
      spoil(mine, world.rank());
      try {
        dispatch_small(world, mine);
      } catch (const Error& error) {
        texts[static_cast<std::size_t>(world.rank())] = error.what();
      }
    });
    EXPECT_THAT(texts[0], testing::HasSubstr(first));
    EXPECT_THAT(texts[1], testing::HasSubstr(second));
    EXPECT_EQ(on.failure(), "");
  };
  all_hear([](DistributeProblem& p, int rank) { p.global_bs = rank == 0 ? 4 : 8; },
           "global_bs: rank 1 has 8, rank 0 has 4", "global_bs: rank 1 has 8, rank 0 has 4");
  all_hear(
      [](DistributeProblem& p, int rank) {
        if (rank == 1) p.group.ranks[1] = {1, {0, 3}, {true, true}, {true}, Values(8, 1), Values(2, 1)};
      },
      "BS (with global_bs 0): rank 1 has 1, rank 0 has 2", "BS (with global_bs 0): rank 1 has 1, rank 0 has 2");
  all_hear([](DistributeProblem& p, int) { p.said_rank = 0; }, "rank 1 refuses its arguments",
           "rank 0 of 2, but the communicator is rank 1 of 2");
  on.run([&](Communicator& world) {
    // Each expert gets one row from each rank.
    EXPECT_EQ(dispatch_small(world, small_problem()).at("expert_token_nums"), (Values{2, 2}));
  });
}

/// An exception that is no refusal but ends this rank: its peers do not wait for it until the deadline.
TEST_P(NpuDistributeRefusalsTest, ARankThatRunsOutOfMemoryAsItChecksEndsTheGroup) {
  Ranks on(2, GetParam().places, {std::chrono::milliseconds(60000), GetParam().transport});
  const auto begin = std::chrono::steady_clock::now();
  std::string of_peer;
  EXPECT_THROW(on.group.run([&](Communicator& world) {
    if (world.rank() == 1) npu::check_together(world, "dispatch", [] { throw std::bad_alloc(); });
    of_peer = error_of([&] { dispatch_small(world, small_problem()); }).what();
  }),
               std::bad_alloc);
  EXPECT_THAT(of_peer, testing::HasSubstr("the group of ranks ended: rank 1: the host could not allocate memory"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

}  // namespace
}  // namespace moecl::test
