// Prefetches over ranks: each rank brings those experts at its places that the tokens of all ranks choose.
#include <gmock/gmock.h>

#include <numeric>

#include "tests/host/layer_of_ranks.hpp"

namespace moecl::test {
namespace {

/// The results of a pass after a prefetch.
struct Told {
  Outputs outputs;
  ResidencyCounts counts;  ///< of all ranks
};

struct PrefetchedPass {
  std::vector<std::int64_t> tokens;  ///< of each dp rank
  StrategyKind kind = StrategyKind::all_gather;
  std::int32_t tp = 1;
  std::int64_t foreseen = 0;              ///< the prefetch has tokens from this one on; the pass has tokens from 0 on
  std::optional<std::int64_t> room = {};  ///< max_tokens_across_dp of the step
};

Told run(Ranks& on, const Model& model, const PlacementPlan& placement, const PrefetchedPass& of) {
  std::vector<Outputs> parts(static_cast<std::size_t>(on.group.size()));
  std::vector<ResidencyCounts> counts(parts.size());
  on.group.run([&](Communicator& world) {
    const ExpertRank rank(world, of.tp, placement.physical());
    ParallelPlan plan{of.kind};
    plan.placement = placement;
    ParallelLayer layer(rank, plan, model.config.shape, model.weights(placement, rank.first_expert, rank.local_experts),
                        model.options);
    const auto mine = of.tokens.begin() + rank.dp.rank();
    const std::int64_t first = std::accumulate(of.tokens.begin(), mine, std::int64_t{0}), hidden = model.hidden();
    const auto begin = model.input.begin() + (first + of.foreseen) * hidden;
    const DeviceTensor x(world.stream(), model.options.dtype, {*mine, hidden}, {begin, begin + *mine * hidden});
    const std::uint64_t stops = world.stream().context->counters().host_syncs;
    MoeInputs inputs;
    inputs.x = x;
    world.barrier();
    Event done;
    layer.prefetch(inputs, {{}, &done});
    layer.prefetch(inputs);  // the experts are there, or on their way
    if (on.group.size() == 1) {
      EXPECT_EQ(world.stream().context->counters().host_syncs, stops);
    }
    const auto r = static_cast<std::size_t>(world.rank());
    parts[r] = forward<ParallelLayer::Forward>(world.stream(), model, first, *mine, [&](ParallelLayer::Forward& args) {
      Step step;
      step.max_tokens_across_dp = of.room;
      layer.forward(args, step);
    });
    world.wait(done);
    counts[r] = layer.residency();
    world.stream().finish();
  });
  Told told;
  for (std::size_t r = 0; r < parts.size(); ++r) {
    if (r % static_cast<std::size_t>(of.tp) == 0) told.outputs.append(parts[r]);
    told.counts.hits += counts[r].hits, told.counts.misses += counts[r].misses;
    told.counts.prefetched += counts[r].prefetched, told.counts.prefetched_hits += counts[r].prefetched_hits;
  }
  return told;
}

ExpertBudget budget_of(double percent, MissedExperts missed) {
  ExpertBudget budget;
  budget.percent = percent, budget.missed = missed;
  return budget;
}

TEST(RankPrefetchTest, BitsOfTheResidentLayer) {
  for (std::int32_t ranks = 1; ranks <= 8; ++ranks) {
    Model model("qwen2-moe-e16k4");
    Ranks on(ranks, Ranks::first_device);
    const PlacementPlan placement = place_experts({16, ranks});
    std::vector<std::int64_t> few(static_cast<std::size_t>(ranks), 0), many(few.size(), 1);
    few.back() = 1, many.front() = 3;
    for (const StrategyKind kind :
         {StrategyKind::mc2, StrategyKind::all_gather, StrategyKind::all2all_v, StrategyKind::multicast})
      for (const std::vector<std::int64_t>& tokens : {few, many}) {
        model.options.budget = {};
        const Outputs whole = run(on, model, placement, {tokens, kind}).outputs;
        for (const MissedExperts missed : {MissedExperts::fetched, MissedExperts::in_place}) {
          SCOPED_TRACE(testing::Message() << ranks << " ranks, " << name(kind) << ", " << name(missed));
          model.options.budget = budget_of(60, missed);
          EXPECT_TRUE(run(on, model, placement, {tokens, kind, 1, 2}).outputs == whole);
        }
      }
  }
}

TEST(RankPrefetchTest, BringsWhatTheTokensOfAllRanksChoose) {
  Model model("qwen3-moe-e64k8");
  for (const MissedExperts missed : {MissedExperts::fetched, MissedExperts::in_place}) {
    model.options.budget = budget_of(50, missed);
    // Placements: linear; round robin; with copies, where a token's number selects the copy.
    const auto expect = [&](const PlacementPlan& placement, std::int32_t ranks, PrefetchedPass pass) {
      std::int64_t hits = 0;
      Ranks on(ranks, Ranks::first_device);
      for (const StrategyKind kind :
           {StrategyKind::mc2, StrategyKind::all_gather, StrategyKind::all2all_v, StrategyKind::multicast})
        // Tokens that a step or a window only has room for need no slots.
        for (const std::optional<std::int64_t> room : {std::optional<std::int64_t>(), std::optional<std::int64_t>(5)}) {
          pass.kind = kind, pass.room = room;
          SCOPED_TRACE(testing::Message() << ranks << " ranks, " << placement.physical() << " places, " << name(missed)
                                          << ", " << name(pass.kind) << ", room for " << pass.room.value_or(0));
          const Told told = run(on, model, placement, pass);
          EXPECT_EQ(told.counts.misses, 0);
          EXPECT_EQ(told.counts.prefetched, told.counts.hits);
          EXPECT_EQ(told.counts.prefetched_hits, told.counts.hits);
          hits = told.counts.hits;
        }
      return hits;
    };
    EXPECT_EQ(expect(place_experts({64}), 1, {{1}}), 8);
    EXPECT_EQ(expect(place_experts({64, 2}), 2, {{0, 1}}), 8);
    EXPECT_EQ(expect(place_experts({64, 4, 8, 0, ExpertPlacement::round_robin}), 4, {{0, 0, 1, 0}}), 8);
    EXPECT_GT(expect(place_experts({64, 2, 1, 64}), 2, {{1, 2}}), 8);
    EXPECT_EQ(expect(place_experts({64, 2}), 2, {{1}, StrategyKind::mc2, 2}), 8);  // both have the token
  }
}

/// The weights and the slots outlive the group that a rank ended, wherever the other ranks' prefetches are by then.
TEST(RankPrefetchTest, ARankThatIsLostMeanwhileLeavesTheLayerWhole) {
  // The last of three ranks is lost. Its experts have copies.
  std::vector<std::int32_t> table(16);
  std::iota(table.begin(), table.end(), 0);
  table.insert(table.end(), {4, 5, 6, 7, 8, 9, 10, 11});
  const PlacementPlan start = place_as_given(table, 16), left = without_ranks(start, 3, {2});
  const auto prefetch = [](const Model& model, ParallelLayer& layer) {
    const std::int64_t tokens = layer.rank().ep.rank() == 0 ? 1 : 0;
    const DeviceTensor x(layer.rank().ep.rank_stream(), DType::f32, {tokens, model.hidden()},
                         {model.input.begin(), model.input.begin() + tokens * model.hidden()});
    MoeInputs inputs;
    inputs.x = x;
    layer.prefetch(inputs);
  };
  for (const MissedExperts missed : {MissedExperts::fetched, MissedExperts::in_place})
    for (const int prefetches : {0, 1, 2}) {
      SCOPED_TRACE(testing::Message() << name(missed) << ", lost after " << prefetches << " prefetches");
      LayerOfRanks of("qwen2-moe-e16k4", 3, {StrategyKind::mc2, start}, budget_of(50, missed));
      const Outputs before = of.pass(StrategyKind::mc2);
      const std::vector<std::string> told = failures(of.on, [&](Communicator& world) {
        ParallelLayer& layer = *of.layers[static_cast<std::size_t>(world.rank())];
        for (int i = 0; i < 2; ++i) {
          if (world.rank() == 2 && i == prefetches) throw std::runtime_error("killed");
          prefetch(of.model, layer);
        }
        if (world.rank() == 2) throw std::runtime_error("killed");
      });
      for (std::size_t r = 0; r < 2; ++r) EXPECT_THAT(told[r], testing::HasSubstr("rank 2: killed"));
      of.keep_first(2, left);
      of.on.group.run(
          [&](Communicator& world) { prefetch(of.model, *of.layers[static_cast<std::size_t>(world.rank())]); });
      expect_same_of_other_ranks(of.pass(StrategyKind::mc2), before);
      std::int64_t prefetched = 0;
      for (const auto& layer : of.layers) prefetched += layer->residency().prefetched;
      EXPECT_GT(prefetched, 0);
    }
}

TEST(RankPrefetchTest, OverEveryTransport) {
  Model model("qwen2-moe-e16k4");
  const PlacementPlan placement = place_experts({16, 2});
  for (const Setting& setting : settings_with_fake) {
    SCOPED_TRACE(setting.name);
    Ranks on(2, setting.places, {.transport = setting.transport});
    model.options.budget = {};
    const Outputs whole = run(on, model, placement, {{1, 0}}).outputs;
    model.options.budget = budget_of(50, MissedExperts::fetched);
    const Told told = run(on, model, placement, {{1, 0}});
    EXPECT_TRUE(told.outputs == whole);
    EXPECT_EQ(told.counts.prefetched, 4);
    EXPECT_EQ(told.counts.misses, 0);
  }
}

TEST(RankPrefetchTest, WithoutABudgetNothingIsEnqueued) {
  Model model("qwen2-moe-e16k4");
  Ranks on(1, Ranks::first_device);
  on.group.run([&](Communicator& world) {
    ParallelLayer layer({world, 1, 16}, {}, model.config.shape, model.weights(0, 16), model.options);
    const DeviceTensor x(world.stream(), DType::f32, {1, model.hidden()});
    MoeInputs inputs;
    inputs.x = x;
    const std::uint64_t launched = world.stream().context->counters().kernels_launched;
    layer.prefetch(inputs);
    EXPECT_EQ(world.stream().context->counters().kernels_launched, launched);
  });
}

TEST(RankPrefetchTest, WhatOneRankIsRefusedAllHear) {
  Model model("qwen2-moe-e16k4");
  model.options.budget = budget_of(50, MissedExperts::fetched);
  const PlacementPlan placement = place_experts({16, 2});
  const auto told = [&](std::int32_t tp, const std::function<void(ParallelLayer&, MoeInputs, StreamView)>& body) {
    Ranks on(2, Ranks::first_device);
    return failures(on, [&](Communicator& world) {
      const ExpertRank rank(world, tp, 16);
      ParallelLayer layer(rank, {StrategyKind::all_gather, placement}, model.config.shape,
                          model.weights(placement, rank.first_expert, rank.local_experts), model.options);
      const DeviceTensor x(world.stream(), DType::f32, {1, model.hidden()});
      MoeInputs inputs;
      inputs.x = x;
      body(layer, inputs, world.stream());
    });
  };
  for (const std::string& text : told(1, [](ParallelLayer&layer, MoeInputs inputs, StreamView) {
         if (layer.rank().ep.rank() == 1) inputs.x = {};
         layer.prefetch(inputs);
       }))
    EXPECT_THAT(text, testing::HasSubstr("x: absent, but the router takes it"));
  for (const std::string& text : told(1, [](ParallelLayer&layer, MoeInputs inputs, StreamView stream) {
         const DeviceTensor narrow(stream, DType::f32, {1, 8});
         if (layer.rank().ep.rank() == 0) inputs.x = narrow;
         layer.prefetch(inputs);
       }))
    EXPECT_THAT(text, testing::HasSubstr("x: expected"));
  for (const std::string& text : told(2, [](ParallelLayer&layer, MoeInputs inputs, StreamView) {
         if (layer.rank().ep.rank() == 1) inputs.x = inputs.x.rows(0, 0);
         layer.prefetch(inputs);
       }))
    EXPECT_THAT(text, testing::HasSubstr("ranks 0 and 1 are one tp group but have 1 and 0 tokens"));
}

}  // namespace
}  // namespace moecl::test
