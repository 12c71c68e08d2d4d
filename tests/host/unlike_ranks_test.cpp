// Ranks that have unequal shares of the experts, as on unlike devices.
#include <moecl/expert_migration.hpp>

#include <gmock/gmock.h>

#include "tests/host/layer_of_ranks.hpp"

namespace moecl::test {
namespace {

constexpr const char* shared_out_layer = "qwen2-moe-e16k4";

TEST(UnlikeRanksTest, BitsOfOneRankInEveryShare) {
  Model model(shared_out_layer);
  const Outputs one = of_one_rank(*devices().front(), model);
  for (const std::vector<std::int32_t>& shares :
       {std::vector<std::int32_t>{12, 4}, {5, 11}, {16, 0}, {1, 9, 6}, {3, 4, 0, 9}}) {
    const auto ranks = static_cast<std::int32_t>(shares.size());
    const PlacementPlan placement = place_in_shares(shares);
    const std::vector<std::int64_t> tokens = [&] {
      std::vector<std::int64_t> each(shares.size(), model.tokens() / ranks);
      each.back() += model.tokens() % ranks;
      return each;
    }();
    for (const Ranks::Places places : {Ranks::first_device, Ranks::all_platforms})
      for (const StrategyKind kind :
           {StrategyKind::mc2, StrategyKind::all_gather, StrategyKind::all2all_v, StrategyKind::multicast}) {
        SCOPED_TRACE(testing::Message() << placement.reason << ", " << name(kind) << ", places " << places);
        Ranks on(ranks, places);
        const Outputs got = of_ranks(on, model, {kind, placement}, 1, tokens, false);
        EXPECT_EQ(got.ids, one.ids);
        EXPECT_LE(relative_error(got.out, one.out), tolerance_between(places, DType::f32));
        EXPECT_LE(relative_error(got.routed, one.routed), tolerance_between(places, DType::f32));
      }
  }
}

TEST(UnlikeRanksTest, MemoryFollowsTheShares) {
  const auto bytes_of = [](const std::vector<std::int32_t>& shares, const ExpertBudget& budget = {}) {
    LayerOfRanks layer(shared_out_layer, 2, {StrategyKind::mc2, place_in_shares(shares)}, budget);
    EXPECT_EQ(layer.layers[0]->expert_places(), shares[0]);
    EXPECT_EQ(layer.layers[1]->expert_places(), shares[1]);
    return std::pair(static_cast<std::int64_t>(layer.layers[0]->report().weight_bytes),
                     static_cast<std::int64_t>(layer.layers[1]->report().weight_bytes));
  };
  const auto [half, other_half] = bytes_of({8, 8});
  const auto [much, little] = bytes_of({12, 4});
  EXPECT_EQ(half, other_half);
  EXPECT_EQ(much + little, 2 * half);
  EXPECT_EQ(much - half, half - little);
  EXPECT_GT(much, little);
}

TEST(UnlikeRanksTest, ExpertsOfSharesMoveAndTakeTurns) {
  for (const double percent : {0.0, 50.0}) {
    LayerOfRanks layer(shared_out_layer, 2, {StrategyKind::mc2, place_in_shares({12, 4})}, {.percent = percent});
    const Outputs before = layer.pass(StrategyKind::mc2);
    EXPECT_LE(relative_error(before.out, of_one_rank(*devices().front(), Model(shared_out_layer)).out), 1e-6);
    std::vector<std::int32_t> table = place_in_shares({12, 4}).logical_of;
    std::swap(table[2], table[13]);
    const PlacementPlan moved = place_what_is_left(table, 16);
    const Outputs after = layer.pass(StrategyKind::mc2, [&](ParallelLayer& l) {
      ExpertMigration migration(l, moved);
      while (migration.step()) {
      }
      migration.commit();
      l.rank().ep.wait(l.rank().ep.rank_stream().record());
    });
    EXPECT_TRUE(after == before);
    EXPECT_EQ(layer.layers[1]->placement().logical_of, table);
  }
}

TEST(UnlikeRanksTest, PlacesWithoutMemoryTakeNoExpert) {
  const PlacementPlan start = place_in_shares({12, 4});
  std::vector<std::int32_t> table = start.logical_of;
  std::swap(table[0], table[20]);
  const PlacementPlan beyond = place_what_is_left(table, 16);
  const auto refused = [&](const std::string& expected, const std::function<void(ParallelLayer&)>& body) {
    expect_refused(shared_out_layer, start, expected, body);
  };
  refused("rank 1 has memory for 4 experts, and one at its place 8",
          [&](ParallelLayer& l) { l.update_expert_map(beyond); });
  refused("rank 1 has memory for 4 experts, and one at its place 8",
          [&](ParallelLayer& l) { ExpertMigration(l, beyond); });
  refused("copy_expert_in: place 4 is not in [0, 4)", [](ParallelLayer& l) {
    if (l.rank().ep.rank() == 1) l.copy_expert_in(4, {});
    Communicator(l.rank().ep).barrier();
  });
  refused("is not in [0, 4)", [](ParallelLayer& l) {
    if (l.rank().ep.rank() == 1) l.replace_expert(4, {});
    Communicator(l.rank().ep).barrier();
  });
  Model model(shared_out_layer);
  model.options.layout = ExpertLayout::batched;
  Ranks on(2, Ranks::first_device);
  EXPECT_THAT(
      [&] {
        of_ranks(on, model, {StrategyKind::mc2, start}, 1, {1, 1}, true);
      },
      testing::ThrowsMessage<Error>(testing::HasSubstr("room for 12 places, of which 4 have weights")));
}

}  // namespace
}  // namespace moecl::test
