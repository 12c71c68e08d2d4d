// Layers whose group loses ranks and gains ranks.
#include <moecl/expert_migration.hpp>

#include <gmock/gmock.h>

#include <array>
#include <condition_variable>
#include <future>
#include <mutex>

#include "tests/host/layer_of_ranks.hpp"
#include "tests/runtime/allocations.hpp"

namespace moecl::test {
namespace {

constexpr const char* elastic_layer = "qwen2-moe-e16k4";

TEST(ElasticGroupTest, SurvivorsGoOnAndReload) {
  // The last of four ranks is lost. Some of its experts have a copy; the others come from the checkpoint.
  const PlacementPlan start =
      place_as_given({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 0, 1, 2, 3, 14, 15, 4, 5, 6, 7}, 16);
  ParallelPlan how{StrategyKind::mc2, start};
  how.lost = LostExperts::masked;
  LayerOfRanks layer(elastic_layer, 4, how);
  const Outputs whole = layer.pass(StrategyKind::mc2);
  EXPECT_THROW(layer.on.group.run([](Communicator& world) {
    if (world.rank() == 3) throw std::runtime_error("killed");
    world.barrier();
  }),
               std::exception);
  PlacementPlan left = without_ranks(start, 4, {3});
  EXPECT_EQ(left.gone(), (std::vector<std::int32_t>{14, 15}));
  layer.keep_first(3, left);
  const Outputs masked = layer.pass(StrategyKind::mc2);
  EXPECT_EQ(masked.ids, whole.ids);
  EXPECT_GT(relative_error(masked.out, whole.out), 1e-4) << "experts 14 and 15 are missing";
  // The experts that are gone get the places of second copies.
  std::vector<std::int32_t> table = left.logical_of;
  table[14] = 14, table[15] = 15;
  const PlacementPlan again = place_as_given(table, 16);
  const Outputs reloaded = layer.pass(StrategyKind::mc2, [&](ParallelLayer& l) {
    const MoeWeights all = layer.model.weights(0, 16);
    if (l.rank().ep.rank() == 2) l.replace_expert(2, all.experts[14]);
    if (l.rank().ep.rank() == 2) l.replace_expert(3, all.experts[15]);
    l.update_expert_map(again);
  });
  EXPECT_TRUE(reloaded == whole);
}

/// Any allocation of rank 1 may fail: its layer keeps its weights and slots, and goes on in the next group.
TEST(ElasticGroupTest, AnAllocationThatFailsCostsNoLayer) {
  const PlacementPlan placement = place_as_given({0, 1, 2, 3, 4, 5, 6, 7, 0, 8, 9, 10, 11, 12, 13, 14, 15, 1}, 16);
  for (const double percent : {0.0, 50.0}) {
    SCOPED_TRACE(percent);
    LayerOfRanks layer(elastic_layer, 2, {StrategyKind::mc2, placement}, {.percent = percent});
    const Outputs before = layer.pass(StrategyKind::mc2);
    std::unique_ptr<RankGroup> now;
    std::uint64_t nth = 0;
    for (bool failed = true; failed;) {
      now = std::make_unique<RankGroup>(layer.on.streams());
      failed = false;
      ++nth;
      const auto move = [&](Communicator& world) {
        ParallelLayer& of = *layer.layers[static_cast<std::size_t>(world.rank())];
        if (world.rank() == 0) {
          of = std::move(of).in_group(ExpertRank(world, 1, placement.physical()), placement);
          return;
        }
        const FailingAllocation allocation(nth);
        try {
          of = std::move(of).in_group(ExpertRank(world, 1, placement.physical()), placement);
          failed = allocation.failed();  // its caller did without
        } catch (const std::exception&) {
          failed = allocation.failed();
          throw;
        }
      };
      try {
        now->run(move);
      } catch (const std::exception& error) {
        EXPECT_TRUE(failed) << error.what();
      }
      ASSERT_LT(nth, 5000U);
    }
    if (FailingAllocation::is_possible()) {
      EXPECT_GT(nth, 20U);
    }
    std::vector<Outputs> parts(2);
    now->run([&](Communicator& world) {
      const auto r = static_cast<std::size_t>(world.rank());
      const std::int64_t tokens = layer.model.tokens(), first = tokens * world.rank() / 2,
                         end = tokens * (world.rank() + 1) / 2;
      parts[r] = forward<ParallelLayer::Forward>(world.stream(), layer.model, first, end - first,
                                                 [&](ParallelLayer::Forward& args) { layer.layers[r]->forward(args); });
    });
    parts[0].append(parts[1]);
    EXPECT_TRUE(parts[0] == before);
  }
}

/// Two ranks with 8 experts each, and a third rank with copies of experts of both.
PlacementPlan with_a_third() {
  std::vector<std::int32_t> table(16);
  std::iota(table.begin(), table.end(), 0);
  table.insert(table.end(), {4, 5, 6, 7, 8, 9, 10, 11});
  return place_as_given(table, 16);
}

/// Between two passes of the others a third rank joins, with weights of its own.
TEST(ElasticGroupTest, ARankMoreTakesPlaces) {
  for (const double percent : {0.0, 50.0}) {
    LayerOfRanks layer(elastic_layer, 2, {StrategyKind::mc2, place_experts({16, 2})}, {.percent = percent});
    const Outputs before = layer.pass(StrategyKind::mc2);
    const Ranks on(3, Ranks::first_device);
    layer.on.group.make({layer.on.streams()[0], layer.on.streams()[1], on.streams()[2]}, {});
    layer.regroup(with_a_third());
    expect_same_of_other_ranks(layer.pass(StrategyKind::mc2), before);
    EXPECT_GT(layer.rows[2], 0) << "the new rank has work";
  }
}

/// Orders the loading steps of one rank after passes of the others: each step waits for a pass.
class BesidePasses {
 public:
  /// Tells that a pass has ended.
  void passed() {
    const std::lock_guard lock(mutex_);
    ++passes_;
    changed_.notify_all();
  }
  /// Waits until another pass has ended.
  void await_a_pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this, until = passes_ + 1] { return passes_ >= until; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t passes_ = 0;
};

/// The third rank loads its experts in a group of its own. Meanwhile the others have passes, at least one for each
/// expert. Between two passes all three then become one group, and during further passes experts move to the new rank.
TEST(ElasticGroupTest, ARankLoadsItsExpertsWhileTheOthersWork) {
  struct Grown {
    double percent;
    bool joined;  ///< as processes join
  };
  for (const Grown& how : {Grown{0, false}, Grown{50, false}, Grown{0, true}}) {
    SCOPED_TRACE(testing::Message() << how.percent << " %, " << (how.joined ? "joined" : "threads"));
    LayerOfRanks layer(elastic_layer, 2, {StrategyKind::mc2, place_experts({16, 2})}, {.percent = how.percent});
    const Outputs before = layer.pass(StrategyKind::mc2);
    const Ranks third(1, Ranks::first_device);
    const PlacementPlan grown = with_a_third(), alone = without_ranks(grown, 3, {0, 1});
    std::optional<RankGroup> itself;
    std::unique_ptr<ParallelLayer> made;
    BesidePasses passes;
    std::future<void> loading = std::async(std::launch::async, [&] {
      itself.emplace(third.streams());
      const ExpertRank rank(itself->communicator(0), 1, alone.physical());
      made = std::make_unique<ParallelLayer>(rank, ParallelPlan{StrategyKind::mc2, alone}, layer.model.config.shape,
                                             layer.model.weights(alone, 0, 8), layer.model.options,
                                             [&](std::int64_t, std::int64_t) { passes.await_a_pass(); });
    });
    for (int count = 0; loading.wait_for(std::chrono::seconds(0)) != std::future_status::ready; ++count) {
      ASSERT_TRUE(layer.pass(StrategyKind::mc2) == before) << "pass " << count;
      passes.passed();
    }
    loading.get();

    const std::vector<StreamView> all = {layer.on.streams()[0], layer.on.streams()[1], third.streams()[0]};
    how.joined ? layer.on.group.join(all, {}, 1) : layer.on.group.make(all, {});
    layer.layers.push_back(std::move(made));
    layer.regroup(grown);
    const Outputs of_three = layer.pass(StrategyKind::mc2);
    expect_same_of_other_ranks(of_three, before);
    EXPECT_GT(layer.rows[2], 0) << "the new rank has work";

    // Experts 12 to 15 go to the new rank, whose copies of 8 to 11 are given up.
    std::vector<std::int32_t> table = grown.logical_of;
    std::swap_ranges(table.begin() + 12, table.begin() + 16, table.begin() + 20);
    const PlacementPlan moved = place_as_given(table, 16);
    std::vector<std::unique_ptr<ExpertMigration>> moves(3);
    bool left = true;
    for (int count = 0; left; ++count) {
      std::array<bool, 3> more = {};
      EXPECT_TRUE(layer.pass(StrategyKind::mc2,
                             [&](ParallelLayer& l) {
                               const auto r = static_cast<std::size_t>(l.rank().ep.rank());
                               if (moves[r] == nullptr)
                                 moves[r] = std::make_unique<ExpertMigration>(l, moved, MigrationOptions{1});
                               more[r] = moves[r]->step();
                             }) == of_three)
          << "step " << count;
      left = more[0];
    }
    layer.pass(StrategyKind::mc2,
               [&](ParallelLayer& l) { moves[static_cast<std::size_t>(l.rank().ep.rank())]->commit(); });
    moves.clear();
    EXPECT_TRUE(layer.pass(StrategyKind::mc2) == of_three);
    EXPECT_EQ(layer.layers[2]->placement().logical_of, table);
  }
}

TEST(ElasticGroupTest, AGroupThatCannotTakeALayerLeavesIt) {
  LayerOfRanks layer(elastic_layer, 2, {StrategyKind::mc2, place_experts({16, 2})});
  const Outputs before = layer.pass(StrategyKind::mc2);
  const auto refused = [&](const std::string& expected, const PlacementPlan& placement) {
    RankGroup other(layer.on.streams());
    EXPECT_THAT(
        [&] {
          other.run([&](Communicator& world) {
            ParallelLayer& of = *layer.layers[static_cast<std::size_t>(world.rank())];
            of = std::move(of).in_group(ExpertRank(world, 1, placement.physical()), placement);
          });
        },
        testing::ThrowsMessage<Error>(testing::HasSubstr(expected)));
    EXPECT_TRUE(layer.pass(StrategyKind::mc2) == before);
  };
  refused("9 places here, the layer has 8", place_experts({16, 2, 1, 2}));
  refused("14 experts are placed", place_as_given({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 0, 1}, 14));
}

}  // namespace
}  // namespace moecl::test
