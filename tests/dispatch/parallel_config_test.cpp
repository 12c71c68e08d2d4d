// How grids of ranks flatten: the table of vLLM's FusedMoEParallelConfig.make, and its formula.
#include <moecl/parallel_config.hpp>

#include <gmock/gmock.h>

#include "tests/dispatch/ranks.hpp"
#include "tests/host/files.hpp"

namespace moecl::test {
namespace {

using testing::HasSubstr;

struct Row {
  std::int32_t ranks, tp;
  bool expert_parallel;
  std::int32_t rank, tp_size, tp_rank, dp_size, dp_rank, ep_size, ep_rank;
};

TEST(ParallelConfigTest, IsTheTableOfVllm) {
  constexpr Row rows[] = {{2, 2, false, 0, 2, 0, 1, 0, 1, 0}, {2, 2, false, 1, 2, 1, 1, 0, 1, 0},  // TP2 DP1
                          {2, 1, false, 0, 2, 0, 2, 0, 1, 0}, {2, 1, false, 1, 2, 1, 2, 1, 1, 0},  // TP1 DP2
                          {4, 2, false, 0, 4, 0, 2, 0, 1, 0}, {4, 2, false, 1, 4, 1, 2, 0, 1, 0},  // TP2 DP2
                          {4, 2, false, 2, 4, 2, 2, 1, 1, 0}, {4, 2, false, 3, 4, 3, 2, 1, 1, 0},
                          {2, 2, true, 0, 1, 0, 1, 0, 2, 0},  {2, 2, true, 1, 1, 0, 1, 0, 2, 1},  // TP2 DP1 EP
                          {2, 1, true, 0, 1, 0, 2, 0, 2, 0},  {2, 1, true, 1, 1, 0, 2, 1, 2, 1},  // TP1 DP2 EP
                          {4, 2, true, 0, 1, 0, 2, 0, 4, 0},  {4, 2, true, 1, 1, 0, 2, 0, 4, 1},  // TP2 DP2 EP
                          {4, 2, true, 2, 1, 0, 2, 1, 4, 2},  {4, 2, true, 3, 1, 0, 2, 1, 4, 3},
                          {1, 1, true, 0, 1, 0, 1, 0, 1, 0}};
  for (const Row& row : rows) {
    const ParallelConfig is = ParallelConfig::make(row.ranks, row.rank, row.tp, 1, 1, row.expert_parallel);
    SCOPED_TRACE(testing::Message() << row.ranks << " ranks, tp " << row.tp << ", rank " << row.rank);
    EXPECT_EQ(is.tp_size, row.tp_size);
    EXPECT_EQ(is.tp_rank, row.tp_rank);
    EXPECT_EQ(is.dp_size, row.dp_size);
    EXPECT_EQ(is.dp_rank, row.dp_rank);
    EXPECT_EQ(is.ep_size, row.ep_size);
    EXPECT_EQ(is.ep_rank, row.ep_rank);
  }
}

TEST(ParallelConfigTest, FlattensContextAndSequenceParallelism) {
  for (std::int32_t rank = 0; rank < 12; ++rank) {
    const ParallelConfig is = ParallelConfig::make(12, rank, 2, 3);
    EXPECT_EQ(is.dp_rank * 3 * 2 + is.pcp_rank * 2 + rank % 2, rank);
    EXPECT_LT(is.pcp_rank, 3);
    EXPECT_EQ(is.dp_size, 2);
    EXPECT_EQ(is.ep_size, 12);
  }
  EXPECT_TRUE(ParallelConfig::make(2, 0, 1, 2).use_all2all());
  EXPECT_TRUE(ParallelConfig::make(2, 0, 2, 1, 2).use_all2all());
  EXPECT_FALSE(ParallelConfig::make(2, 0, 2).use_all2all());
  EXPECT_FALSE(ParallelConfig::make(4, 0, 2, 2, 2, false).use_all2all());
}

TEST(ParallelConfigTest, GivesTheRankOfALayer) {
  Ranks on(4, Ranks::first_device, {});
  on.group.run([&](Communicator& world) {
    const ParallelConfig config = ParallelConfig::make(4, world.rank(), 2, 2);
    const ExpertRank rank = config.expert_rank(world, 8);
    EXPECT_EQ(rank.dp.size(), 2);  // the two ranks of the pcp group
    EXPECT_EQ(rank.dp.rank(), config.pcp_rank);
    EXPECT_EQ(rank.first_expert, 2 * config.ep_rank);
    EXPECT_EQ(rank.local_experts, 2);
    EXPECT_THAT(error_of([&] { ParallelConfig::make(2, 0, 1).expert_rank(world, 8); }).what(),
                HasSubstr("2 ranks of a grid, the group has 4"));
  });
}

TEST(ParallelConfigTest, RefusesWhatDoesNotDivide) {
  const auto refusal = [](std::int32_t ranks, std::int32_t rank, std::int32_t tp, std::int32_t pcp, std::int32_t sp) {
    return std::string(error_of([&] { ParallelConfig::make(ranks, rank, tp, pcp, sp); }).what());
  };
  EXPECT_THAT(refusal(4, 4, 1, 1, 1), HasSubstr("rank 4 of 4"));
  EXPECT_THAT(refusal(4, 0, 3, 1, 1), HasSubstr("parallel.tp: 3 does not divide 4 ranks"));
  EXPECT_THAT(refusal(4, 0, 2, 4, 1), HasSubstr("parallel.pcp: 4 does not divide 2 groups of tp"));
  EXPECT_THAT(refusal(4, 0, 2, 1, 4), HasSubstr("parallel.sp: 4 is neither 1 nor tp, 2"));
}

}  // namespace
}  // namespace moecl::test
