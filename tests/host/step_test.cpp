// Steps of a layer over ranks: a strategy for each pass over one copy of the weights, results that are not reduced, and
// the memory that all layers of the ranks share.
#include <moecl/step.hpp>

#include <gmock/gmock.h>

#include "tests/host/ranked_model.hpp"

namespace moecl::test {
namespace {

constexpr StrategyKind all_kinds[] = {StrategyKind::mc2, StrategyKind::all_gather, StrategyKind::all2all_v,
                                      StrategyKind::multicast};

class StepTest : public testing::TestWithParam<Setting> {
 protected:
  Ranks make(std::int32_t count) const {
    return {count, GetParam().places, {std::chrono::milliseconds(60000), GetParam().transport}};
  }
  bool one_platform() const { return GetParam().places != Ranks::all_platforms; }
};
INSTANTIATE_TEST_SUITE_P(Places, StepTest, testing::ValuesIn(settings_of_layers()),
                         [](const auto& param) { return std::string(param.param.name); });

/// A rank's layer of a model.
std::unique_ptr<ParallelLayer> layer_of(const ExpertRank& rank, const Model& model, const ParallelPlan& plan = {}) {
  return std::make_unique<ParallelLayer>(rank, plan, model.config.shape,
                                         model.weights(rank.first_expert, rank.local_experts), model.options);
}

/// The f32 tokens of a rank, and memory for the output of a pass.
struct Pass {
  DeviceTensor x, out;

  Pass(StreamView stream, const Model& model, std::int64_t first, std::int64_t tokens)
      : x(stream, DType::f32, {tokens, model.hidden()},
          {model.input.begin() + first * model.hidden(), model.input.begin() + (first + tokens) * model.hidden()}),
        out(stream, DType::f32, {tokens, model.hidden()}) {}
  MoeForward args() const {
    MoeForward args;
    args.x = x;
    args.out = out;
    return args;
  }
};

TEST_P(StepTest, PassesOfEveryStrategyRunOverOneCopyOfTheWeights) {
  const Model model("qwen2-moe-e16k4");
  const std::vector<std::int64_t> tokens = {20, 13};
  Ranks on = make(2), apart = make(2);
  std::vector<Outputs> expected;
  for (const StrategyKind kind : all_kinds) expected.push_back(of_ranks(apart, model, {kind}, 1, tokens, false));
  std::vector<std::vector<Outputs>> got(2);
  on.group.run([&](Communicator& world) {
    const ExpertRank rank(world, 1, model.config.shape.experts);
    const auto layer = layer_of(rank, model);
    const std::uint64_t weights = layer->report().weight_bytes;
    const auto r = static_cast<std::size_t>(world.rank());
    const ContextCounters& counters = world.stream().context->counters();
    std::uint64_t programs[2] = {};
    for (std::uint64_t& after : programs) {
      for (const StrategyKind kind : all_kinds)
        got[r].push_back(forward<MoeForward>(world.stream(), model, r == 0 ? 0 : tokens[0], tokens[r],
                                             [&](MoeForward& args) { layer->forward(args, {kind}); }));
      world.share("turn", {});  // every rank's turn has ended
      after = counters.programs_built + counters.programs_from_disk;
    }
    EXPECT_EQ(programs[1], programs[0]) << "a strategy that ran before compiles nothing when it comes again";
    EXPECT_EQ(layer->report().weight_bytes, weights);
  });
  for (std::size_t i = 0; i < got[0].size(); ++i) {
    Outputs both = got[0][i];
    both.append(got[1][i]);
    EXPECT_TRUE(both == expected[i % 4]) << name(all_kinds[i % 4]) << ", pass " << i;
  }
}

TEST_P(StepTest, RanksThatDisagreeAboutAStepAllFail) {
  const Model model("qwen2-moe-e16k4");
  const auto texts = [&](const Step& others, const Step& of_rank_1) {
    Ranks on = make(2);
    std::vector<std::uint64_t> launched(2);
    const std::vector<std::string> failed = failures(on, [&](Communicator& world) {
      const ExpertRank rank(world, 1, model.config.shape.experts);
      const auto layer = layer_of(rank, model);
      const Pass pass(world.stream(), model, 0, 3);
      world.share("layers", {});
      const std::uint64_t before = world.stream().context->counters().kernels_launched;
      try {
        layer->forward(pass.args(), world.rank() == 1 ? of_rank_1 : others);
      } catch (const Error&) {
        launched[static_cast<std::size_t>(world.rank())] = world.stream().context->counters().kernels_launched - before;
        throw;
      }
    });
    EXPECT_THAT(launched, testing::Each(0U));
    return failed;
  };
  Step partial, bounded;
  partial.reduce_results = false;
  bounded.max_tokens_across_dp = 7;
  EXPECT_THAT(texts({}, {StrategyKind::multicast}),
              testing::Each(testing::HasSubstr("strategy: rank 1 has multicast, rank 0 has mc2")));
  EXPECT_THAT(texts({}, partial), testing::Each(testing::HasSubstr("reduce_results: rank 1 has 0, rank 0 has 1")));
  EXPECT_THAT(texts({}, bounded), testing::Each(testing::HasSubstr("max_tokens_across_dp: rank 1 has 7")));
  bounded.max_tokens_across_dp = 2;
  EXPECT_THAT(texts(bounded, bounded),
              testing::Each(testing::HasSubstr("3 tokens are more than max_tokens_across_dp, 2")));
}

TEST_P(StepTest, RanksAgreeAboutAStepBeforeAnyPass) {
  const Model model("qwen2-moe-e16k4");
  const auto texts = [&](const std::function<void(std::int32_t rank, Step & step, std::int64_t & tokens)>& spoil) {
    Ranks on = make(2);
    return failures(on, [&](Communicator& world) {
      Step step;
      step.num_tokens_across_dp = {3, 4};
      std::int64_t tokens = 3 + world.rank();
      spoil(world.rank(), step, tokens);
      AgreedStep(ExpertRank(world, 1, 16), step, tokens);
    });
  };
  const auto all_say = [&](const char* text) { return testing::Each(testing::HasSubstr(text)); };
  EXPECT_THAT(texts([](std::int32_t rank, Step& step, auto&) { step.uniform_decode = rank == 1; }),
              all_say("step: uniform_decode: rank 1 has 1, rank 0 has 0"));
  EXPECT_THAT(texts([](std::int32_t rank, Step& step, auto&) {
                if (rank == 1) step.micro_batches = 2;
              }),
              all_say("step: micro_batches: rank 1 has 2, rank 0 has none"));
  EXPECT_THAT(texts([](std::int32_t rank, Step& step, auto&) {
                if (rank == 0) step.strategy = StrategyKind::all2all_v;
              }),
              all_say("step: strategy: rank 1 has none, rank 0 has all2allv"));
  EXPECT_THAT(texts([](std::int32_t rank, Step& step, auto&) {
                if (rank == 1) step.num_tokens_across_dp = {3, 5};
              }),
              all_say("step: num_tokens_across_dp: rank 1 has digest"));
  EXPECT_THAT(texts([](std::int32_t rank, Step&, std::int64_t& tokens) { tokens += rank; }),
              all_say("step: dp rank 1 has 5 tokens, 4 are given"));
  EXPECT_THAT(texts([](std::int32_t, Step& step, auto&) { step.num_tokens_across_dp.push_back(1); }),
              all_say("step: tokens of 3 dp ranks are given, there are 2"));
  EXPECT_THAT(texts([](std::int32_t, Step& step, auto&) {
                step.cu_tokens_across_dp = {3, 7};
              }),
              all_say("num_tokens_across_dp or cu_tokens_across_dp, not both"));
  EXPECT_THAT(texts([](std::int32_t, Step& step, auto&) {
                step.num_tokens_across_dp.clear();
                step.cu_tokens_across_dp = {3, 8};
              }),
              all_say("step: dp rank 1 has 4 tokens, 5 are given"));
  // A refusal of one rank alone reaches the other.
  EXPECT_THAT(texts([](std::int32_t rank, Step& step, auto&) {
                if (rank == 1) step.micro_batches = 3;
              }),
              all_say("step: 3 micro-batches, not 1 or 2"));
  const DeviceTensor mask(devices()[0]->stream, DType::u8, {4});
  EXPECT_THAT(texts([&](std::int32_t rank, Step& step, auto&) {
                if (rank == 1) step.finished = mask.view.rows(0, 3);
              }),
              all_say("step: finished: expected u8 or boolean [4]"));
}

TEST_P(StepTest, AgreedStepsAreOfTheTokensAndRanksOfThePass) {
  const Model model("qwen2-moe-e16k4");
  Ranks on = make(2);
  const std::vector<std::string> failed = failures(on, [&](Communicator& world) {
    const auto layer = layer_of(ExpertRank(world, 1, model.config.shape.experts), model);
    const AgreedStep of_group(ExpertRank(world, 2, model.config.shape.experts), {}, 3);
    const Pass pass(world.stream(), model, 0, 3);
    if (world.rank() == 0) layer->forward(pass.args(), of_group);
  });
  EXPECT_THAT(failed, testing::Each(testing::HasSubstr("step: it was agreed by rank 0 of 2 with 2 of a tp group, the "
                                                       "layer's is rank 0 of 2 with 1")));
  Ranks again = make(2);
  EXPECT_THAT(failures(again,
                       [&](Communicator& world) {
                         const auto layer = layer_of(ExpertRank(world, 1, model.config.shape.experts), model);
                         const AgreedStep step = layer->agree({}, 3);
                         const Pass pass(world.stream(), model, 0, 3 + world.rank());
                         if (world.rank() == 1) layer->forward(pass.args(), step);
                       }),
              testing::Each(testing::HasSubstr("forward: x has 4 tokens, the step 3")));
}

// Uneven shares, rows of padding that a mask takes out, and bounds that are larger than any share.
TEST_P(StepTest, PaddedAndUnevenSharesGiveTheLayer) {
  const Model model("qwen2-moe-e16k4");
  const Outputs expected = of_one_rank(*devices()[0], model);
  const std::vector<std::int64_t> tokens = {20, 13};
  for (const StrategyKind kind : all_kinds)
    for (const bool padded : {false, true}) {
      SCOPED_TRACE(testing::Message() << name(kind) << (padded ? ", padded" : ""));
      std::vector<std::vector<double>> out(2);
      Ranks on = make(2);
      on.group.run([&](Communicator& world) {
        const auto r = static_cast<std::size_t>(world.rank());
        const auto layer = layer_of(ExpertRank(world, 1, model.config.shape.experts), model);
        const StreamView stream = world.stream();
        const std::int64_t rows = padded ? 20 : tokens[r];
        std::vector<double> x(
            model.input.begin() + static_cast<std::int64_t>(r) * tokens[0] * model.hidden(),
            model.input.begin() + (static_cast<std::int64_t>(r) * tokens[0] + tokens[r]) * model.hidden());
        x.resize(static_cast<std::size_t>(rows * model.hidden()), 1e30);
        std::vector<double> mask(static_cast<std::size_t>(rows), 0);
        std::fill(mask.begin() + tokens[r], mask.end(), 1);
        const DeviceTensor in(stream, DType::f32, {rows, model.hidden()}, x), finished(stream, DType::u8, {rows}, mask),
            routed(stream, DType::f32, {rows, model.hidden()});
        Step step{kind};
        step.finished = finished;
        step.max_tokens_across_dp = 24;
        if (padded)
          step.cu_tokens_across_dp = {20, 40};
        else
          step.num_tokens_across_dp = tokens;
        MoeForward args;
        args.x = in;
        args.routed_out = routed;
        layer->forward(args, step);
        out[r] = routed.values(stream);
      });
      const auto end_of = [&](std::size_t r) { return out[r].begin() + tokens[r] * model.hidden(); };
      for (std::size_t r = 0; r < 2; ++r)
        EXPECT_TRUE(std::all_of(end_of(r), out[r].end(), [](double value) { return value == 0; }));
      std::vector<double> both(out[0].begin(), end_of(0));
      both.insert(both.end(), out[1].begin(), end_of(1));
      EXPECT_LE(relative_error(both, expected.routed), 1e-6);
    }
}

// vLLM's dual batch overlap: decoding and prefill have a threshold each.
TEST_P(StepTest, ThresholdsOfMicroBatches) {
  const Model model("mixtral-skew");
  Ranks on = make(2);
  on.group.run([&](Communicator& world) {
    ParallelPlan plan;
    plan.dbo_decode_token_threshold = 4;
    plan.dbo_prefill_token_threshold = 9;
    const auto layer = layer_of(ExpertRank(world, 1, model.config.shape.experts), model, plan);
    // A micro-batch agrees about nothing, so two of them meet as often as two passes.
    const auto meetings = [&](std::int64_t tokens, bool decode, std::optional<std::int32_t> batches = {}) {
      Step step{StrategyKind::all_gather};
      step.uniform_decode = decode;
      step.micro_batches = batches;
      const Pass pass(world.stream(), model, 0, world.rank() == 0 ? tokens : 1);
      const AgreedStep agreed = layer->agree(step, pass.x.view.shape[0]);
      const std::uint64_t before = world.meetings();
      layer->forward(pass.args(), agreed);
      world.stream().finish();
      return world.meetings() - before;
    };
    const std::uint64_t of_one = meetings(3, true);
    EXPECT_EQ(meetings(4, true), 2 * of_one);
    EXPECT_EQ(meetings(8, false), of_one);
    EXPECT_EQ(meetings(9, false), 2 * of_one);
    EXPECT_EQ(meetings(9, false, 1), of_one);
    EXPECT_EQ(meetings(3, true, 2), 2 * of_one);
  });
}

TEST_P(StepTest, RulesChooseForEachPass) {
  const Model model("qwen2-moe-e16k4");
  Ranks on = make(2);
  on.group.run([&](Communicator& world) {
    ParallelPlan plan;
    plan.rules = StrategyRules::a3;
    const auto layer = layer_of(ExpertRank(world, 1, model.config.shape.experts), model, plan);
    const std::uint64_t weights = layer->report().weight_bytes;
    const Pass pass(world.stream(), model, 0, 3);
    for (const std::int64_t most : {512, 513, 3}) {
      Step step;
      step.max_tokens_across_dp = most;
      layer->forward(pass.args(), step);
      EXPECT_EQ(layer->last_strategy().kind, most == 513 ? StrategyKind::all2all_v : StrategyKind::mc2);
      EXPECT_THAT(layer->last_strategy().reason, testing::HasSubstr("rules a3; "));
    }
    layer->forward(pass.args(), {StrategyKind::multicast});
    EXPECT_EQ(layer->last_strategy().kind, StrategyKind::multicast);
    EXPECT_EQ(layer->report().weight_bytes, weights);
    world.stream().finish();
  });
}

TEST_P(StepTest, PartsOfATpGroupAddUpToTheLayer) {
  struct Case {
    const char* model;
    std::int32_t tp;
    std::vector<std::int64_t> tokens;
    ExpertSharding sharding;
    SharedSharding shared;
  };
  const Case cases[] = {{"qwen2-moe-e16k4", 4, {33}, ExpertSharding::experts, SharedSharding::replicated},
                        {"qwen2-moe-e16k4", 2, {5, 28}, ExpertSharding::experts, SharedSharding::intermediate},
                        {"deepseek-v3-e32k8-g8", 2, {0, 33}, ExpertSharding::experts, SharedSharding::tokens},
                        {"qwen2-moe-e16k4", 4, {33}, ExpertSharding::intermediate, SharedSharding::intermediate},
                        {"mixtral-skew", 2, {1, 127}, ExpertSharding::experts, SharedSharding::replicated}};
  for (const Case& c : cases) {
    const Model model(c.model);
    const Outputs expected = of_one_rank(*devices()[0], model);
    const bool has_shared = model.config.shape.shared_intermediate > 0;
    Ranks on = make(4);
    for (const StrategyKind kind : all_kinds) {
      if (c.sharding == ExpertSharding::intermediate && (kind == StrategyKind::mc2 || kind == StrategyKind::all2all_v))
        continue;
      SCOPED_TRACE(testing::Message() << c.model << ", " << name(kind) << ", tp " << c.tp);
      std::vector<double> out, routed, shared;  // of the first rank of each tp group
      on.group.run([&](Communicator& world) {
        const ExpertRank rank(world, c.tp, model.config.shape.experts, c.sharding);
        ParallelPlan plan;
        plan.strategy = StrategyKind::all_gather;
        plan.shared_sharding = c.shared;
        const auto layer = layer_of(rank, model, plan);
        const auto d = static_cast<std::size_t>(rank.dp.rank());
        const std::int64_t first =
            std::accumulate(c.tokens.begin(), c.tokens.begin() + rank.dp.rank(), std::int64_t{0});
        const Pass pass(world.stream(), model, first, c.tokens[d]);
        const DeviceTensor routed_out(world.stream(), DType::f32, {c.tokens[d], model.hidden()}),
            shared_out(world.stream(), DType::f32, {c.tokens[d], model.hidden()});
        MoeForward args = pass.args();
        args.routed_out = routed_out;
        if (has_shared) args.shared_out = shared_out;
        Step step{kind};
        step.reduce_results = false;
        layer->forward(args, step);
        Communicator tp = rank.tp;
        for (const DeviceTensor* part : {&pass.out, &routed_out, &shared_out}) tp.all_reduce(*part);
        const std::vector<double> sums[] = {pass.out.values(world.stream()), routed_out.values(world.stream()),
                                            shared_out.values(world.stream())};
        for (std::int32_t turn = 0; turn < rank.dp.size(); ++turn) {
          world.share("turn", {});
          if (turn != rank.dp.rank() || rank.tp.rank() != 0) continue;
          out.insert(out.end(), sums[0].begin(), sums[0].end());
          routed.insert(routed.end(), sums[1].begin(), sums[1].end());
          shared.insert(shared.end(), sums[2].begin(), sums[2].end());
        }
      });
      EXPECT_LE(relative_error(out, expected.out), 1e-6);
      EXPECT_LE(relative_error(routed, expected.routed), 1e-6);
      if (!has_shared) continue;
      for (std::size_t i = 0; i < shared.size(); ++i) shared[i] += expected.routed[i];
      EXPECT_LE(relative_error(shared, expected.out), 1e-6);
    }
  }
}

// Decoding and prefill in turn, through all layers.
TEST_P(StepTest, FourLayersTakeTheMemoryOfOne) {
  const Model model("qwen2-moe-e16k4");
  const std::vector<std::int64_t> tokens = {20, 13};
  ParallelPlan plan;
  plan.dbo_prefill_token_threshold = 16;
  const auto passes = [&](std::size_t count, const std::vector<Step>& steps, std::vector<std::uint64_t>& bytes) {
    std::vector<std::vector<double>> outputs(2);
    Ranks on = make(2);
    on.group.run([&](Communicator& world) {
      const ExpertRank rank(world, 1, model.config.shape.experts);
      std::vector<std::unique_ptr<ParallelLayer>> layers;
      for (std::size_t i = 0; i < count; ++i) layers.push_back(layer_of(rank, model, plan));
      const auto r = static_cast<std::size_t>(world.rank());
      for (const Step& step : steps)
        for (const std::int64_t some : {std::int64_t{2}, tokens[r]}) {
          const Pass pass(world.stream(), model, r == 0 ? 0 : tokens[0], some);
          MoeForward args = pass.args();
          const AgreedStep agreed = layers[0]->agree(step, some);
          for (const auto& layer : layers) {
            layer->forward(args, agreed);
            args.x = args.out;  // the next layer's input
          }
          const std::vector<double> out = pass.out.values(world.stream());
          outputs[r].insert(outputs[r].end(), out.begin(), out.end());
        }
      for (const auto& layer : layers) EXPECT_EQ(layer->workspace_bytes(), layers[0]->workspace_bytes());
      bytes[r] = layers[0]->workspace_bytes();
    });
    return outputs;
  };
  // all2all_v is left out: its bytes depend on the routing, which differs from layer to layer.
  std::vector<std::uint64_t> of_one(2), of_four(2), with_rows(2);
  passes(1, {{StrategyKind::mc2}, {StrategyKind::all_gather}}, of_one);
  passes(4, {{StrategyKind::mc2}, {StrategyKind::all_gather}, {StrategyKind::mc2}}, of_four);
  EXPECT_EQ(of_four, of_one);
  EXPECT_THAT(of_one, testing::Each(testing::Gt(0U)));
  const std::vector<Step> steps = {
      {StrategyKind::mc2}, {StrategyKind::all2all_v}, {StrategyKind::all_gather}, {StrategyKind::mc2}};
  const std::vector<std::vector<double>> together = passes(4, steps, with_rows);

  // Expected: the bits of layers that have memory of their own.
  std::vector<std::vector<double>> alone(2), x(2);
  for (const Step& step : steps)
    for (const bool few : {true, false}) {
      const auto count = [&](std::size_t r) { return few ? 2 : tokens[r]; };
      for (std::size_t r = 0; r < 2; ++r) {
        const auto begin = model.input.begin() + (r == 0 ? 0 : tokens[0] * model.hidden());
        x[r].assign(begin, begin + count(r) * model.hidden());
      }
      for (int i = 0; i < 4; ++i) {
        Ranks own = make(2);
        own.group.run([&](Communicator& world) {
          const auto r = static_cast<std::size_t>(world.rank());
          const auto layer = layer_of(ExpertRank(world, 1, model.config.shape.experts), model, plan);
          const DeviceTensor in(world.stream(), DType::f32, {count(r), model.hidden()}, x[r]),
              out(world.stream(), DType::f32, {count(r), model.hidden()});
          MoeForward args;
          args.x = in;
          args.out = out;
          layer->forward(args, step);
          x[r] = out.values(world.stream());
        });
      }
      for (std::size_t r = 0; r < 2; ++r) alone[r].insert(alone[r].end(), x[r].begin(), x[r].end());
    }
  EXPECT_EQ(together, alone);
}

TEST_P(StepTest, BytesAreSaidBefore) {
  const Model model("qwen2-moe-e16k4");
  const MoeShape& shape = model.config.shape;
  struct Case {
    std::int32_t ranks, tp;
    std::int64_t tokens;
    std::optional<std::int64_t> dbo_prefill_token_threshold;
    std::int32_t ranks_per_node = 0;
  };
  for (const Case& c :
       {Case{2, 1, 7, {}}, Case{3, 1, 6, 4}, Case{4, 2, 5, {}}, Case{1, 1, 9, {}}, Case{4, 1, 3, {}, 2}})
    for (const StrategyKind kind : all_kinds) {
      SCOPED_TRACE(testing::Message() << name(kind) << ", " << c.ranks << " ranks, tp " << c.tp << ", " << c.tokens);
      Ranks on = make(c.ranks);
      on.group.run([&](Communicator& world) {
        const ExpertRank rank(world, c.tp, shape.experts, ExpertSharding::experts, c.ranks_per_node);
        ParallelPlan plan;
        plan.dbo_prefill_token_threshold = c.dbo_prefill_token_threshold;
        const auto layer = layer_of(rank, model, plan);
        Step step{kind};
        step.max_tokens_across_dp = c.tokens;
        const std::uint64_t said = layer->workspace_bytes(step);
        const Pass pass(world.stream(), model, 0, c.tokens);
        // The pass runs in the caller's memory, which has these bytes and no more.
        const Buffer given(*world.stream().context, said);
        MoeForward args = pass.args();
        args.workspace = given.view();
        layer->forward(args, step);
        const std::vector<double> in_given = pass.out.values(world.stream());
        const std::uint64_t windows = layer->workspace_bytes();
        layer->forward(pass.args(), step);
        EXPECT_EQ(pass.out.values(world.stream()), in_given);
        const std::uint64_t taken = layer->workspace_bytes() - windows;
        if (kind == StrategyKind::all2all_v && c.ranks > 1) {
          EXPECT_LE(taken, said);
        } else {
          EXPECT_EQ(taken, said);
        }
      });
    }
}

TEST_P(StepTest, RefusesAWorkspaceThatIsTooSmall) {
  const Model model("qwen2-moe-e16k4");
  const auto refusal = [&](const Step& step, std::uint64_t missing_bytes) {
    Ranks on = make(2);
    return failures(on, [&](Communicator& world) {
      const auto layer = layer_of(ExpertRank(world, 1, model.config.shape.experts), model);
      Step known = step;
      known.max_tokens_across_dp = 3;
      const Buffer given(*world.stream().context, layer->workspace_bytes(known));
      const Pass pass(world.stream(), model, 0, 3);
      MoeForward args = pass.args();
      args.workspace = given.view().slice(0, given.size_bytes() - missing_bytes);
      layer->forward(args, step);
    });
  };
  EXPECT_THAT(refusal({}, 0), testing::Each(testing::HasSubstr("depends on max_tokens_across_dp")));
  Step known;
  known.max_tokens_across_dp = 3;
  EXPECT_THAT(refusal(known, 4), testing::Each(testing::HasSubstr("workspace: a step of at most 3 tokens needs")));
}

}  // namespace
}  // namespace moecl::test
