// Which groups a rank of a grid is in and which experts it has, without any exchange.
#include <moecl/strategy.hpp>

#include <gmock/gmock.h>

#include "tests/dispatch/ranks.hpp"
#include "tests/host/files.hpp"

namespace moecl::test {
namespace {

/// {size, rank}
using Position = std::pair<std::int32_t, std::int32_t>;
Position position(const Communicator& of) { return {of.size(), of.rank()}; }

std::vector<ExpertRank> grid(Ranks& on, std::int32_t tp, ExpertSharding sharding, std::int32_t ranks_per_node = 0) {
  std::vector<ExpertRank> ranks;
  for (std::int32_t rank = 0; rank < on.group.size(); ++rank)
    ranks.emplace_back(on.group.communicator(rank), tp, 8, sharding, ranks_per_node);
  return ranks;
}

// Source: the worked tables of vLLM's FusedMoEParallelConfig. The MoE never mixes TP and EP: all ranks flatten into one
// or the other, dp_rank * tp + tp_rank.
TEST(ExpertRankTest, TheGridFlattensAsInTheTables) {
  struct Row {
    std::int32_t tp, dp;
    std::vector<Position> dp_of_rank;
  };
  for (const Row& row :
       {Row{2, 1, {{1, 0}, {1, 0}}}, Row{1, 2, {{2, 0}, {2, 1}}}, Row{2, 2, {{2, 0}, {2, 0}, {2, 1}, {2, 1}}}})
    for (const ExpertSharding sharding : {ExpertSharding::experts, ExpertSharding::intermediate}) {
      SCOPED_TRACE(testing::Message() << "tp " << row.tp << ", dp " << row.dp << ", sharding "
                                      << static_cast<int>(sharding));
      const std::int32_t flat = row.tp * row.dp;
      Ranks on(flat, Ranks::first_device);
      const std::vector<ExpertRank> ranks = grid(on, row.tp, sharding);
      for (std::int32_t r = 0; r < flat; ++r) {
        const ExpertRank& rank = ranks[static_cast<std::size_t>(r)];
        EXPECT_EQ(position(rank.ep), Position(flat, r));
        EXPECT_EQ(position(rank.dp), row.dp_of_rank[static_cast<std::size_t>(r)]);
        EXPECT_EQ(position(rank.tp), Position(row.tp, r % row.tp));
        const bool whole = sharding == ExpertSharding::experts;
        EXPECT_EQ(rank.first_expert, whole ? r * 8 / flat : 0);
        EXPECT_EQ(rank.local_experts, whole ? 8 / flat : 8);
      }
    }
}

TEST(ExpertRankTest, NodesAreRunsOfRanksAndPeersHaveOneIndex) {
  Ranks on(6, Ranks::first_device);
  const std::vector<ExpertRank> ranks = grid(on, 1, ExpertSharding::experts, 3);
  for (std::int32_t r = 0; r < 6; ++r) {
    const ExpertRank& rank = ranks[static_cast<std::size_t>(r)];
    EXPECT_EQ(position(rank.node), Position(3, r % 3));
    EXPECT_EQ(position(rank.peers), Position(2, r / 3));
    const ExpertRank alone = rank.of_node();
    EXPECT_EQ(position(alone.ep), Position(3, r % 3));
    EXPECT_EQ(position(alone.dp), Position(3, r % 3));
    EXPECT_EQ(alone.ep_first_expert, r < 3 ? 0 : 5);  // the ranks have 2 2 1 1 1 1 experts
    EXPECT_EQ(alone.experts, r < 3 ? 5 : 3);
  }
}

TEST(ExpertRankTest, RanksWithTokensOfTheirOwnAreAllDataParallel) {
  Ranks on(4, Ranks::first_device);
  for (const ExpertRank& rank : grid(on, 2, ExpertSharding::experts)) {
    const ExpertRank own = rank.with_own_tokens();
    EXPECT_EQ(position(own.dp), position(rank.ep));
    EXPECT_EQ(position(own.tp), Position(1, 0));
  }
}

TEST(ExpertRankTest, RefusesGridsThatDoNotDivideTheWorld) {
  Ranks on(4, Ranks::first_device);
  const Communicator world = on.group.communicator(0);
  EXPECT_THAT(error_of([&] { ExpertRank(world, 3, 8); }).what(), testing::HasSubstr("tp 3 does not divide 4 ranks"));
  EXPECT_THAT(error_of([&] { ExpertRank(world, 0, 8); }).what(), testing::HasSubstr("tp 0 does not divide 4 ranks"));
  EXPECT_THAT(error_of([&] { ExpertRank(world, 1, 8, ExpertSharding::experts, 3); }).what(),
              testing::HasSubstr("nodes of 3 ranks do not divide 4 ranks"));
}

}  // namespace
}  // namespace moecl::test
