// A layer over several ranks is the layer of one rank.
#include <gmock/gmock.h>

#include "tests/host/ranked_model.hpp"

namespace moecl::test {
namespace {

class ParallelLayerTest : public testing::TestWithParam<Setting> {
 protected:
  Ranks make(std::int32_t count, std::chrono::milliseconds deadline = std::chrono::milliseconds(60000)) {
    return {count, GetParam().places, {deadline, GetParam().transport}};
  }
};
INSTANTIATE_TEST_SUITE_P(Places, ParallelLayerTest, testing::ValuesIn(settings_of_layers()),
                         [](const auto& param) { return std::string(param.param.name); });

TEST_P(ParallelLayerTest, IsTheLayerOfOneRank) {
  struct Case {
    const char* model;
    DType dtype;
    std::int32_t ranks, tp;
    std::vector<std::int64_t> shares;  ///< tokens of the dp ranks but the last, which has the rest
    std::int32_t redundant = 0;
    ExpertPlacement placement = ExpertPlacement::linear;
  };
  const Case cases[] = {{"qwen3-moe-e64k8", DType::f32, 2, 1, {5}},
                        {"qwen2-moe-e16k4", DType::f32, 3, 1, {0, 7}},  // gated shared experts, uneven experts
                        {"deepseek-v3-e32k8-g8", DType::f32, 4, 2, {9}},
                        {"deepseek-v3-e32k8-g8", DType::f32, 3, 1, {4, 3}, 0, ExpertPlacement::round_robin},
                        {"mixtral-skew", DType::f32, 4, 4, {}},
                        {"mixtral-skew", DType::f32, 6, 2, {3, 5}, 16},  // every expert at three places
                        {"qwen3-moe-e64k8", DType::f32, 3, 1, {0, 5}, 2},
                        {"qwen3-moe-e64k8", DType::f16, 2, 1, {5}},
                        {"deepseek-v3-e32k8-g8", DType::bf16, 4, 2, {9}},
                        {"mixtral-odd257-bf16", DType::bf16, 8, 1, {1, 0, 2, 1, 0, 1, 1}}};
  TestDevice& first = *devices()[GetParam().places == Ranks::last_device ? devices().size() - 1 : 0];
  const bool same_bits = GetParam().places != Ranks::all_platforms && one_variant(first);
  for (const Case& c : cases) {
    const Model model(c.model, c.dtype);
    std::vector<std::int64_t> tokens = c.shares;
    tokens.push_back(model.tokens() - std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0}));
    ASSERT_GE(tokens.back(), 0) << c.model;
    const Outputs expected = of_one_rank(first, model);
    Ranks on = make(c.ranks);
    const PlacementPlan placement = place_experts(
        {model.config.shape.experts, c.ranks, model.config.shape.router.groups, c.redundant, c.placement});
    EXPECT_EQ(placement.placement, c.placement);
    for (const StrategyKind kind :
         {StrategyKind::mc2, StrategyKind::all_gather, StrategyKind::all2all_v, StrategyKind::multicast}) {
      SCOPED_TRACE(testing::Message() << c.model << ", " << name(kind) << ", " << c.ranks << " ranks, tp " << c.tp);
      const Outputs got =
          of_ranks(on, model, {kind, placement}, c.tp, tokens, GetParam().places != Ranks::all_platforms);
      EXPECT_EQ(got.ids, expected.ids);
      // For 16-bit layers mc2 brings sums home, not rows.
      if (same_bits && (kind == StrategyKind::all2all_v || (kind == StrategyKind::mc2 && c.dtype == DType::f32))) {
        EXPECT_TRUE(got == expected) << relative_error(got.out, expected.out);
      } else {
        const double tolerance = tolerance_between(GetParam().places, c.dtype);
        EXPECT_LE(relative_error(got.out, expected.out), tolerance);
        EXPECT_LE(relative_error(got.routed, expected.routed), tolerance);
      }
    }
  }
}

TEST_P(ParallelLayerTest, PartsOfEveryExpertAreTheLayerOfOneRank) {
  struct Case {
    const char* model;
    std::int32_t ranks, tp;
    std::vector<std::int64_t> shares;
  };
  const Case cases[] = {{"qwen3-moe-e64k8", 2, 1, {5}},
                        {"qwen2-moe-e16k4", 3, 1, {0, 7}},  // I is not divisible by 3
                        {"deepseek-v3-e32k8-g8", 4, 2, {9}},
                        {"mixtral-skew", 4, 4, {}}};
  TestDevice& first = *devices()[GetParam().places == Ranks::last_device ? devices().size() - 1 : 0];
  for (const Case& c : cases) {
    const Model model(c.model);
    std::vector<std::int64_t> tokens = c.shares;
    tokens.push_back(model.tokens() - std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0}));
    const Outputs expected = of_one_rank(first, model);
    Ranks on = make(c.ranks);
    for (const StrategyKind kind : {StrategyKind::all_gather, StrategyKind::multicast}) {
      SCOPED_TRACE(testing::Message() << c.model << ", " << name(kind) << ", " << c.ranks << " ranks, tp " << c.tp);
      const Outputs got = of_ranks(on, model, {kind}, c.tp, tokens, GetParam().places != Ranks::all_platforms,
                                   {ExpertSharding::intermediate});
      EXPECT_EQ(got.ids, expected.ids);
      EXPECT_LE(relative_error(got.out, expected.out), 1e-6);
      EXPECT_LE(relative_error(got.routed, expected.routed), 1e-6);
    }
  }
}

/// A layer of 4 ranks in 2 tp groups. Rank 2 brings x [tokens, hidden]; the others bring 3 tokens of the right size.
std::vector<std::string> failures_of_rank_2(Ranks& on, const Model& model, std::int64_t tokens, std::int64_t hidden) {
  return failures(on, [&](Communicator& world) {
    const ExpertRank rank(world, 2, model.config.shape.experts);
    ParallelLayer layer(rank, {StrategyKind::mc2}, model.config.shape,
                        model.weights(rank.first_expert, rank.local_experts));
    const bool odd = world.rank() == 2;
    const DeviceTensor x(world.stream(), DType::f32, {odd ? tokens : 3, odd ? hidden : model.hidden()}),
        out(world.stream(), DType::f32, {odd ? tokens : 3, model.hidden()});
    ParallelLayer::Forward args;
    args.x = x;
    args.out = out;
    layer.forward(args);
  });
}

TEST_P(ParallelLayerTest, AnotherHiddenSizeFailsOnEveryRank) {
  const Model model("qwen2-moe-e16k4");
  Ranks on = make(4);
  for (const std::string& text : failures_of_rank_2(on, model, 3, model.hidden() + 1))
    EXPECT_THAT(text, testing::HasSubstr("x: expected f32[3, 64], got f32[3, 65]"));
  EXPECT_THAT(on.group.failure(), testing::StartsWith("rank 2: x: expected"));
}

TEST_P(ParallelLayerTest, AnotherTokenCountWithinATpGroupFailsOnEveryRank) {
  const Model model("qwen2-moe-e16k4");
  Ranks on = make(4);
  for (const std::string& text : failures_of_rank_2(on, model, 5, model.hidden()))
    EXPECT_THAT(text, testing::HasSubstr("ranks 2 and 3 are one tp group but have 5 and 3 tokens"));
}

TEST_P(ParallelLayerTest, ARankThatDoesNotComeToTheExchangeIsNamed) {
  const Model model("qwen2-moe-e16k4");
  for (const bool throws : {true, false}) {
    const std::string own = throws ? "the disk is full" : "late";
    const auto texts_of_group = [&] {
      Ranks on = make(3, std::chrono::milliseconds(throws ? 60000 : 300));
      std::vector<std::unique_ptr<ParallelLayer>> layers(3);  // made before, so that the deadline is the exchange's
      try {
        on.group.run([&](Communicator& world) {
          const ExpertRank rank(world, 1, model.config.shape.experts);
          layers[static_cast<std::size_t>(world.rank())] =
              std::make_unique<ParallelLayer>(rank, ParallelPlan{StrategyKind::all2all_v}, model.config.shape,
                                              model.weights(rank.first_expert, rank.local_experts));
        });
      } catch (const Error& error) {
        return std::vector<std::string>(3, error.what());
      }
      return failures(on, [&](Communicator& world) {
        if (world.rank() == 1) {
          while (!throws && on.group.failure().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
          throw std::runtime_error(own);
        }
        const DeviceTensor x(world.stream(), DType::f32, {3, model.hidden()}),
            out(world.stream(), DType::f32, {3, model.hidden()});
        ParallelLayer::Forward args;
        args.x = x;
        args.out = out;
        layers[static_cast<std::size_t>(world.rank())]->forward(args);
      });
    };
    const auto names_it = [&](const std::string& text) {
      return text == own || text.find(throws ? "rank 1: the disk is full" : "waited 300 ms for rank 1") != text.npos;
    };
    for (const std::string& text : failures_by_deadline(texts_of_group, names_it)) EXPECT_PRED1(names_it, text);
  }
}

TEST_P(ParallelLayerTest, WhatOneRankAloneIsRefusedEndsTheGroup) {
  const Model model("qwen2-moe-e16k4");
  Ranks on = make(2);
  std::string of_peer;
  const Error of_group = error_of([&] {
    on.group.run([&](Communicator& world) {
      const ExpertRank rank(world, 1, model.config.shape.experts);
      std::optional<ParallelLayer> layer;
      const DeviceTensor x(world.stream(), DType::f32, {3, model.hidden() - world.rank()}),
          out(world.stream(), DType::f32, {3, model.hidden()});
      ParallelLayer::Forward args;
      args.x = x;
      args.out = out;
      // The peer may get the error while it still makes its layer.
      const std::string refusal = error_of([&] {
                                    layer.emplace(rank, ParallelPlan{StrategyKind::all2all_v}, model.config.shape,
                                                  model.weights(rank.first_expert, rank.local_experts));
                                    layer->forward(args);
                                  }).what();
      if (world.rank() == 0) of_peer = refusal;
      world.stream().finish();
    });
  });
  EXPECT_THAT(of_group.what(), testing::HasSubstr("rank 1: x: expected"));
  EXPECT_THAT(of_peer, testing::HasSubstr("rank 1: x: expected"));
}

TEST_P(ParallelLayerTest, RefusesWhatDoesNotFitTheRank) {
  const Model model("qwen2-moe-e16k4");
  Ranks on = make(2);
  const Error of_group = error_of([&] {
    on.group.run([&](Communicator& world) {
      const MoeShape& shape = model.config.shape;
      const ExpertRank rank(world, 1, shape.experts), other(world, 1, shape.experts - 1);
      const auto refused = [&](const ExpertRank& of, std::int64_t experts, const MoeLayerOptions& options = {}) {
        return std::string(error_of([&] {
                             ParallelLayer(of, {StrategyKind::mc2}, shape, model.weights(0, experts), options);
                           }).what());
      };
      EXPECT_THAT(refused(other, other.local_experts),
                  testing::HasSubstr("the rank shards 15 experts, the shape has 16"));
      const auto misplaced = [&](const PlaceExperts& problem) {
        const ParallelPlan plan{StrategyKind::mc2, place_experts(problem)};
        return std::string(error_of([&] { ParallelLayer(rank, plan, shape, model.weights(0, 8)); }).what());
      };
      EXPECT_THAT(misplaced({15, 2}), testing::HasSubstr("15 experts are placed, the shape has 16"));
      EXPECT_THAT(misplaced({16, 2, 1, 4}), testing::HasSubstr("the rank shards 16 experts, the placement has 20"));
      MoeLayerOptions batched;
      batched.layout = ExpertLayout::batched;
      const ExpertRank parts(world, 1, shape.experts, ExpertSharding::intermediate);
      EXPECT_THAT(refused(parts, shape.experts), testing::HasSubstr("strategy mc2: sends tokens to whole experts"));
      const ParallelPlan coded{StrategyKind::mc2, {}, WireFormat::int8};
      EXPECT_THAT(error_of([&] { ParallelLayer(rank, coded, shape, model.weights(0, 8), batched); }).what(),
                  testing::HasSubstr("the batched layout is of rows as they are, not of int8 codes"));
      ParallelPlan by_hand{StrategyKind::mc2, place_experts({16, 2})};
      by_hand.placement.physical_of.resize(12);
      EXPECT_THAT(error_of([&] { ParallelLayer(rank, by_hand, shape, model.weights(0, 8)); }).what(),
                  testing::HasSubstr("placement: physical_of has 12 entries, expected [16, 1]"));
    });
  });
  EXPECT_THAT(of_group.what(), testing::HasSubstr("the rank shards 15 experts, the shape has 16"));
}

/// Each rank makes a layer from its own arguments; every rank gets the error of the rank that cannot.
TEST_P(ParallelLayerTest, ALayerThatOneRankCannotMakeEndsTheGroup) {
  const Model model("qwen2-moe-e16k4");
  const MoeShape& shape = model.config.shape;
  using Make = std::function<void(Communicator&)>;
  const std::pair<const char*, Make> cases[] = {
      {"experts: the shape says 8, the weights have 7",
       [&](Communicator& world) {
         const ExpertRank rank(world, 1, shape.experts);
         ParallelLayer(rank, {StrategyKind::mc2}, shape, model.weights(0, world.rank() == 1 ? 7 : 8));
       }},
      {"an intermediate size of 1 is too small for 2 ranks", [&](Communicator& world) {
         MoeShape narrow = shape;
         narrow.intermediate = 1;
         const ExpertRank rank(world, 1, shape.experts, ExpertSharding::intermediate);
         ParallelLayer(rank, {StrategyKind::all_gather}, narrow, model.weights(0, shape.experts));
       }}};
  for (const auto& [cause, make_layer] : cases) {
    Ranks on = make(2);
    for (const std::string& text : failures(on, make_layer)) EXPECT_THAT(text, testing::HasSubstr(cause));
  }
}

/// Without a plan the place of every expert is its number. A plan may say the same.
TEST_P(ParallelLayerTest, AnEmptyPlacementIsTheIdentity) {
  const Model model("deepseek-v3-e32k8-g8");
  Ranks on = make(2);
  on.group.run([&](Communicator& world) {
    const ExpertRank rank(world, 1, 32);
    ParallelPlan plan{StrategyKind::mc2};
    if (world.rank() == 1) plan.placement = place_experts({32, 2});
    EXPECT_NO_THROW(
        ParallelLayer(rank, plan, model.config.shape, model.weights(rank.first_expert, rank.local_experts)));
  });
}

TEST_P(ParallelLayerTest, RanksThatDisagreeAllFail) {
  const Model model("deepseek-v3-e32k8-g8");
  struct Mine {
    ParallelPlan plan;
    MoeLayerOptions options;
    MoeShape shape;
  };
  const std::pair<const char*, std::function<void(Mine&)>> cases[] = {
      {"placement: rank 1 has round_robin, rank 0 has linear",
       [](Mine& mine) {
         mine.plan.placement = place_experts({32, 2, 8, 0, ExpertPlacement::round_robin});
       }},
      {"experts by place: rank 1 has digest ",
       [](Mine& mine) {
         PlacementPlan& by_hand = mine.plan.placement;
         std::swap(by_hand.logical_of[3], by_hand.logical_of[20]);
         std::swap(by_hand.physical_of[3], by_hand.physical_of[20]);
       }},
      {"strategy: rank 1 has all2allv, rank 0 has mc2",
       [](Mine& mine) { mine.plan.strategy = StrategyKind::all2all_v; }},
      {"shared_sharding: rank 1 has tokens, rank 0 has replicated",
       [](Mine& mine) { mine.plan.shared_sharding = SharedSharding::tokens; }},
      {"dbo_prefill_token_threshold: rank 1 has 7, rank 0 has none",
       [](Mine& mine) { mine.plan.dbo_prefill_token_threshold = 7; }},
      {"dtype: rank 1 has f16, rank 0 has f32", [](Mine& mine) { mine.options.dtype = DType::f16; }},
      {"router: rank 1 has digest ", [](Mine& mine) { mine.shape.router.scaling_factor *= 2; }}};
  for (const auto& [difference, change] : cases) {
    Ranks on = make(2);
    for (const std::string& text : failures(on, [&, &change_it = change](Communicator& world) {
           Mine mine{{StrategyKind::mc2, place_experts({32, 2})}, {}, model.config.shape};
           if (world.rank() == 1) change_it(mine);
           const ExpertRank rank(world, 1, 32);
           ParallelLayer(rank, mine.plan, mine.shape,
                         model.weights(mine.plan.placement, rank.first_expert, rank.local_experts), mine.options);
         }))
      EXPECT_THAT(text, testing::HasSubstr(std::string("parallel layer: ") + difference));
  }
}

}  // namespace
}  // namespace moecl::test
