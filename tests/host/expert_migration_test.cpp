// Experts that change places between passes: by hand, and by a migration; experts that have gone.
#include <moecl/expert_migration.hpp>
#include <moecl/fault.hpp>

#include <gmock/gmock.h>

#include "tests/host/c_golden.hpp"
#include "tests/host/layer_of_ranks.hpp"

namespace moecl::test {
namespace {

constexpr const char* golden_layer = "qwen2-moe-e16k4";
constexpr StrategyKind kinds[] = {StrategyKind::mc2, StrategyKind::all_gather, StrategyKind::all2all_v,
                                  StrategyKind::multicast};

/// A table of P places for E experts, with copies. The ranks have other experts than in the linear table.
PlacementPlan shuffled(std::int32_t experts, std::int32_t places, std::int32_t step) {
  std::vector<std::int32_t> table;
  for (std::int32_t p = 0; p < places; ++p) table.push_back((p * step + p / experts) % experts);
  return place_as_given(table, experts);
}

TEST(ExpertMigrationTest, BitsBeforeDuringAndAfter) {
  for (const char* name : {golden_layer, "mixtral-awq-e4k2", "gpt-oss-mxfp4-e8k4", "qwen3-moe-gptq-e8k4"})
    for (std::int32_t ranks = 1; ranks <= 8; ++ranks) {
      const Model model(name);
      const std::int32_t experts = model.config.shape.experts, copies = ranks - experts % ranks;
      const PlacementPlan start = place_experts({experts, ranks, 1, copies}),
                          target = shuffled(experts, experts + copies, 3);
      ASSERT_NE(start.logical_of, target.logical_of);
      LayerOfRanks layer(name, ranks, {StrategyKind::mc2, start});
      std::vector<Outputs> before;
      for (const StrategyKind kind : kinds) before.push_back(layer.pass(kind));
      EXPECT_LE(relative_error(before.front().out, golden_values(name, "output")),
                std::string(name).find("mxfp4") != std::string::npos ? 5e-3 : 2e-5);
      std::vector<std::unique_ptr<ExpertMigration>> migrations(layer.layers.size());
      const auto of = [&](const ParallelLayer& l) -> std::unique_ptr<ExpertMigration>& {
        return migrations[static_cast<std::size_t>(l.rank().ep.rank())];
      };
      std::int64_t passes = 0;
      for (bool left = true; left; ++passes) {
        const std::size_t kind = static_cast<std::size_t>(passes) % 4;
        const Outputs during = layer.pass(kinds[kind], [&](ParallelLayer& l) {
          // One expert in each step, so that passes come in between.
          if (of(l) == nullptr) of(l) = std::make_unique<ExpertMigration>(l, target, MigrationOptions{1});
          const bool more = of(l)->step();
          if (l.rank().ep.rank() == 0) left = more;
        });
        EXPECT_TRUE(during == before[kind]) << name << ", " << ranks << " ranks, pass " << passes;
      }
      const MigrationProgress progress = migrations.front()->progress();
      EXPECT_EQ(progress.moved, progress.moves);
      EXPECT_EQ(progress.moves > 0, ranks > 1);
      layer.pass(kinds[0], [&](ParallelLayer& l) { of(l)->commit(); });
      for (std::size_t k = 0; k < 4; ++k) {
        const Outputs after = layer.pass(kinds[k]);
        SCOPED_TRACE(testing::Message() << name << ", " << moecl::name(kinds[k]) << ", " << ranks << " ranks");
        if (ranks == 1 || kinds[k] == StrategyKind::mc2 || kinds[k] == StrategyKind::all2all_v) {
          EXPECT_TRUE(after == before[k]);
        } else {
          EXPECT_LE(relative_error(after.out, before[k].out), 1e-6);  // these add in the order of the ranks
        }
      }
      for (const auto& of_rank : layer.layers) EXPECT_EQ(of_rank->placement().logical_of, target.logical_of);
    }
}

TEST(ExpertMigrationTest, ExpertsOfABudgetMoveToo) {
  ExpertBudget budget;
  for (const MissedExperts missed : {MissedExperts::fetched, MissedExperts::in_place}) {
    budget.percent = 30, budget.missed = missed;
    const PlacementPlan start = place_experts({16, 2}), target = shuffled(16, 16, 5);
    LayerOfRanks layer(golden_layer, 2, {StrategyKind::mc2, start}, budget);
    const Outputs before = layer.pass(StrategyKind::mc2);
    const auto prefetch = [&](ParallelLayer& l) {
      const DeviceTensor x(l.rank().ep.rank_stream(), DType::f32, {l.rank().ep.rank(), layer.model.hidden()});
      MoeInputs tokens;
      tokens.x = x;
      Event done;
      l.prefetch(tokens, {{}, &done});
      return done;
    };
    layer.pass(StrategyKind::mc2, [&](ParallelLayer& l) {
      ExpertMigration migration(l, target);
      while (migration.step()) {
      }
      const Event by_the_old_table = prefetch(l);
      migration.commit();
      const Event by_the_new_one = prefetch(l);
      l.rank().ep.rank_stream().finish();
      for (const Event* of : {&by_the_old_table, &by_the_new_one}) l.rank().ep.wait(*of);
    });
    EXPECT_TRUE(layer.pass(StrategyKind::mc2) == before);
  }
}

TEST(ExpertMigrationTest, WhatIsGivenUpOrFailsLeavesTheOldTable) {
  const PlacementPlan start = place_experts({16, 2}), target = shuffled(16, 16, 5);
  LayerOfRanks layer(golden_layer, 2, {StrategyKind::mc2, start});
  const Outputs before = layer.pass(StrategyKind::mc2);
  const Outputs during = layer.pass(StrategyKind::mc2, [&](ParallelLayer& l) {
    ExpertMigration migration(l, target, {1});
    migration.step();
  });
  EXPECT_TRUE(during == before);
  EXPECT_TRUE(layer.pass(StrategyKind::mc2) == before);
  for (const auto& of_rank : layer.layers) EXPECT_EQ(of_rank->placement().logical_of, start.logical_of);
  // A rank that dies in the middle of a move ends the group for all ranks; they keep the old table.
  EXPECT_THROW(layer.pass(StrategyKind::mc2,
                          [&](ParallelLayer& l) {
                            ExpertMigration migration(l, target, {1});
                            migration.step();
                            if (l.rank().ep.rank() == 1) throw std::runtime_error("rank 1 is gone");
                            migration.step();
                            while (migration.step()) {
                            }
                            migration.commit();
                          }),
               std::exception);
  EXPECT_EQ(layer.layers.front()->placement().logical_of, start.logical_of);
}

TEST(ExpertMigrationTest, WhatCannotBeIsRefused) {
  const PlacementPlan start = place_experts({16, 2});
  const auto refused = [&](const std::string& expected, const std::function<void(ParallelLayer&)>& body) {
    expect_refused(golden_layer, start, expected, body);
  };
  refused("16 experts at 18 places, the layer has 16 at 16", [](ParallelLayer& l) {
    ExpertMigration(l, place_experts({16, 2, 1, 2}));
  });
  refused("0 of", [](ParallelLayer& l) { ExpertMigration(l, shuffled(16, 16, 5), {1}).commit(); });
  refused("16 experts at 18 places", [](ParallelLayer& l) { l.update_expert_map(place_experts({16, 2, 1, 2})); });
  refused("experts by place", [](ParallelLayer& l) {
    l.update_expert_map(l.rank().ep.rank() == 0 ? place_experts({16, 2}) : shuffled(16, 16, 5));
  });
}

TEST(ExpertMapTest, SwappedBetweenPasses) {
  const PlacementPlan start = place_experts({16, 2}), other = shuffled(16, 16, 7);
  LayerOfRanks layer(golden_layer, 2, {StrategyKind::mc2, start});
  const Outputs before = layer.pass(StrategyKind::mc2);
  // The caller brings the weights, as from a checkpoint.
  layer.pass(StrategyKind::mc2, [&](ParallelLayer& l) {
    const MoeWeights all = layer.model.weights(0, 16);
    const ExpertRank& rank = l.rank();
    for (std::int64_t place = 0; place < rank.local_experts; ++place)
      l.replace_expert(
          place,
          all.experts[static_cast<std::size_t>(other.logical_of[static_cast<std::size_t>(rank.first_expert + place)])]);
    l.update_expert_map(other);
  });
  for (const StrategyKind kind : kinds) {
    const Outputs after = layer.pass(kind);
    EXPECT_EQ(after.ids, before.ids);
    EXPECT_LE(relative_error(after.out, before.out), 1e-6);
  }
  EXPECT_TRUE(layer.pass(StrategyKind::mc2) == before);
}

TEST(ReplicaChoiceTest, EveryChoiceGivesTheSameBits) {
  const PlacementPlan plan = place_experts({16, 2, 1, 16});
  for (const ReplicaChoice choice : {ReplicaChoice::token_hash, ReplicaChoice::per_rank, ReplicaChoice::by_need}) {
    ParallelPlan how{StrategyKind::mc2, plan};
    how.replicas = choice;
    if (choice == ReplicaChoice::by_need) how.loads = std::vector<double>(16, 1);
    LayerOfRanks layer(golden_layer, 2, how);
    const Outputs got = layer.pass(StrategyKind::mc2);
    EXPECT_LE(relative_error(got.out, golden_values(golden_layer, "output")), 1e-5);
    static Outputs first;
    if (choice == ReplicaChoice::token_hash) first = got;
    EXPECT_TRUE(got == first);
  }
}

TEST(LostExpertsTest, TokensAreMaskedOrRefused) {
  // Experts 3 and 10 have no place: their places are free.
  PlacementPlan lacking = place_experts({16, 2});
  lacking.logical_of[3] = lacking.logical_of[10] = -1;
  lacking = place_what_is_left(lacking.logical_of, 16);
  const auto gone = [](double id) { return id == 3 || id == 10; };
  for (const LostExperts lost : {LostExperts::refused, LostExperts::masked}) {
    ParallelPlan how{StrategyKind::mc2, place_experts({16, 2})};
    how.lost = lost;
    LayerOfRanks layer(golden_layer, 2, how);
    const Outputs whole = layer.pass(StrategyKind::mc2);
    std::vector<double> faults;
    const Outputs got = layer.pass(
        StrategyKind::mc2, [&](ParallelLayer& l) { l.update_expert_map(lacking); }, &faults);
    EXPECT_EQ(got.ids, whole.ids) << "logical choices are told as they are";
    EXPECT_EQ(got.weights, whole.weights);
    const bool faulty = faults[0] != 0 || faults[4] != 0;
    EXPECT_EQ(faulty, lost == LostExperts::refused);
    if (faulty) {
      EXPECT_EQ(faults[faults[0] != 0 ? 0 : 4], static_cast<double>(FaultCode::expert_gone));
    }
    // Expected: the layer on one rank, with the weights that the definition gives.
    const Model model(golden_layer);
    std::vector<double> expected_ids, expected_weights;
    for (std::size_t slot = 0; slot < whole.ids.size(); slot += 4) {
      double all = 0, here = 0;
      for (std::size_t k = slot; k < slot + 4; ++k) {
        all += whole.weights[k];
        if (!gone(whole.ids[k])) here += whole.weights[k];
      }
      for (std::size_t k = slot; k < slot + 4; ++k) {
        const double scale = lost == LostExperts::masked && here > 0 ? all / here : 1;
        expected_ids.push_back(gone(whole.ids[k]) ? -1 : whole.ids[k]);
        expected_weights.push_back(gone(whole.ids[k]) ? 0 : whole.weights[k] * scale);
      }
    }
    const StreamView stream = layer.on.streams().front();
    const MoeLayer one(stream, model.config.shape, model.weights(0, 16), model.options);
    const std::int64_t tokens = model.tokens(), hidden = model.hidden();
    const DeviceTensor x(stream, DType::f32, {tokens, hidden}, model.input), out(stream, DType::f32, {tokens, hidden}),
        chosen(stream, DType::i32, {tokens, 4}, expected_ids),
        of_chosen(stream, DType::f32, {tokens, 4}, expected_weights);
    const Buffer workspace(*stream.context, one.workspace_bytes(tokens));
    MoeLayer::Forward args;
    args.x = x, args.out = out, args.ids = chosen, args.weights = of_chosen, args.workspace = workspace.view();
    one.forward(stream, args);
    EXPECT_LE(relative_error(got.out, out.values(stream)), 1e-6);
    EXPECT_GT(relative_error(got.out, whole.out), 1e-3);
  }
}

}  // namespace
}  // namespace moecl::test
