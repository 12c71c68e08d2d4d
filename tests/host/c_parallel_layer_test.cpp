// A layer over ranks through the C interface: the goldens, and the bits of the C++ layer of the same plan.
#include <moecl/parallel_layer.h>

#include <gmock/gmock.h>

#include "tests/host/c_golden.hpp"
#include "tests/host/c_layers.hpp"
#include "tests/host/ranked_model.hpp"

namespace moecl::test {
namespace {

class CParallelLayerTest : public testing::TestWithParam<Ranks::Places> {
 protected:
  std::vector<const TestDevice*> places() const {
    std::vector<const TestDevice*> on = {devices().front().get()};
    if (GetParam() == Ranks::all_platforms) on.push_back(devices().back().get());
    return on;
  }
};
INSTANTIATE_TEST_SUITE_P(Places, CParallelLayerTest, testing::Values(Ranks::first_device, Ranks::all_platforms),
                         [](const auto& param) {
                           return std::string(param.param == Ranks::first_device ? "first_device" : "all_platforms");
                         });

TEST_P(CParallelLayerTest, GoldensWithEveryOption) {
  using Options = moecl_parallel_options;
  struct Case {
    const char* model;
    std::int32_t ranks;
    std::vector<std::int64_t> tokens;  ///< of each dp rank, or of each rank where every rank has its own
    std::function<void(Options&)> options = [](Options&) {};
    std::function<void(ParallelPlan&, RankedOptions&)> plan = [](ParallelPlan&, RankedOptions&) {};
    bool whole_experts = true;
    double tolerance = 1e-5;  ///< against the golden
  };
  const auto sharding = [](moecl_shared_sharding shared) {
    return Case{"qwen2-moe-e16k4",
                4,
                {33},
                [=](Options& o) { o.tp = 4, o.shared_sharding = shared; },
                [=](ParallelPlan& p, RankedOptions&) { p.shared_sharding = static_cast<SharedSharding>(shared); }};
  };
  const auto wire = [](moecl_wire_format format) {
    return Case{"qwen2-moe-e16k4",
                3,
                {20, 0, 13},
                [=](Options& o) { o.wire = format; },
                [=](ParallelPlan& p, RankedOptions&) { p.wire = static_cast<WireFormat>(format); },
                true,
                0.1};
  };
  const Case cases[] = {{"qwen2-moe-e16k4", 3, {0, 7, 26}},
                        {"deepseek-v3-e32k8-g8", 4, {9, 24}, [](Options& o) { o.tp = 2; }},
                        {"mixtral-t0", 2, {0, 0}},
                        {"deepseek-v3-e32k8-g8",
                         3,
                         {4, 3, 26},
                         [](Options& o) { o.placement = MOECL_PLACE_ROUND_ROBIN; },
                         [](ParallelPlan& p, RankedOptions&) {
                           p.placement = place_experts({32, 3, 8, 0, ExpertPlacement::round_robin});
                         }},
                        {"qwen2-moe-e16k4",
                         3,
                         {11, 11, 11},
                         [](Options& o) { o.redundant_experts = 2; },
                         [](ParallelPlan& p, RankedOptions&) {
                           p.placement = place_experts({16, 3, 1, 2});
                         }},
                        {"qwen2-moe-e16k4",
                         2,
                         {5, 28},
                         [](Options& o) { o.dbo_prefill_token_threshold = 1; },
                         [](ParallelPlan& p, RankedOptions&) { p.dbo_prefill_token_threshold = 1; }},
                        {"qwen2-moe-e16k4",
                         4,
                         {9, 8, 16, 0},
                         [](Options& o) { o.tp = 2, o.replace_allreduce = 1; },
                         [](ParallelPlan& p, RankedOptions&) { p.replace_allreduce = true; }},
                        {"qwen2-moe-e16k4",
                         2,
                         {5, 28},
                         [](Options& o) { o.expert_sharding = MOECL_SHARD_INTERMEDIATE; },
                         [](ParallelPlan&, RankedOptions& o) { o.sharding = ExpertSharding::intermediate; },
                         false},
                        sharding(MOECL_SHARED_TOKENS),
                        sharding(MOECL_SHARED_INTERMEDIATE),
                        wire(MOECL_WIRE_INT8),
                        wire(MOECL_WIRE_FP8),
                        wire(MOECL_WIRE_MXFP8)};
  for (const Case& c : cases) {
    const Model model(c.model);
    CGroup on(c.ranks, 0, places());
    CLayers layers(on);
    for (const moecl_strategy strategy : c_strategies) {
      if (!c.whole_experts && (strategy == MOECL_STRATEGY_MC2 || strategy == MOECL_STRATEGY_ALL2ALL_V)) continue;
      auto options = sized<Options>();
      options.strategy = strategy;
      c.options(options);
      SCOPED_TRACE(testing::Message() << c.model << ", strategy " << strategy << ", " << c.ranks << " ranks, case "
                                      << &c - cases);
      layers.load(c.model, options);
      ASSERT_EQ(on.failure(), "");
      const std::vector<CLayers::Pass> passes = layers.forward(dealt(model.input, model.hidden(), c.ranks, c.tokens));
      ASSERT_EQ(on.failure(), "");
      const moecl_parallel_layer_info info = layers.info(0);
      EXPECT_EQ(info.strategy, strategy);
      EXPECT_STREQ(info.strategy_reason, "asked for");
      EXPECT_EQ(info.placement, options.placement);

      std::vector<double> out, routed, ids;
      const std::size_t same = passes.size() / c.tokens.size();
      for (std::size_t rank = 0; rank < passes.size(); rank += same) {
        out.insert(out.end(), passes[rank].out.begin(), passes[rank].out.end());
        routed.insert(routed.end(), passes[rank].routed.begin(), passes[rank].routed.end());
        ids.insert(ids.end(), passes[rank].ids.begin(), passes[rank].ids.end());
      }
      EXPECT_LE(relative_error(out, golden_values(c.model, "output")), c.tolerance);
      EXPECT_LE(relative_error(routed, golden_values(c.model, "routed_output")), c.tolerance);

      ParallelPlan plan;
      RankedOptions ranked;
      c.plan(plan, ranked);
      plan.strategy = static_cast<StrategyKind>(strategy - 1);
      Ranks cpp(c.ranks, GetParam());
      const Outputs expected = of_ranks(cpp, model, plan, std::max(options.tp, 1), c.tokens, false, ranked);
      EXPECT_EQ(ids, expected.ids);
      if (GetParam() == Ranks::first_device) {
        EXPECT_EQ(out, expected.out);
        EXPECT_EQ(routed, expected.routed);
      }
    }
  }
}

TEST_P(CParallelLayerTest, NodesHaveBytesBetweenThem) {
  const std::string name = "deepseek-v3-e32k8-g8";
  const std::vector<double> input = golden_values(name, "hidden_states");
  CGroup on(4, 0, places());
  CLayers layers(on);
  auto options = sized<moecl_parallel_options>();
  options.strategy = MOECL_STRATEGY_MC2;
  options.ranks_per_node = 2;
  layers.load(name, options);
  const std::vector<CLayers::Pass> passes = layers.forward(dealt(input, 96, 4, {8, 8, 8, 9}));
  std::vector<double> out;
  for (std::size_t rank = 0; rank < 4; ++rank) {
    out.insert(out.end(), passes[rank].out.begin(), passes[rank].out.end());
    const moecl_parallel_layer_info info = layers.info(rank);
    EXPECT_THAT(info.strategy_reason, testing::HasSubstr("over 2 nodes of 2 ranks in two levels"));
    // dispatch/STRATEGIES.md: from the other node's rank of the same index, its tokens with ids and weights, and one
    // sum for each token of this rank.
    const std::uint64_t theirs = rank == 1 ? 9 : 8, mine = rank == 3 ? 9 : 8;
    EXPECT_EQ(info.bytes_between_nodes, theirs * (96 * 4 + 8 * 8) + mine * 96 * 4) << "rank " << rank;
    EXPECT_GT(info.bytes_received, info.bytes_between_nodes);
  }
  EXPECT_LE(relative_error(out, golden_values(name, "output")), 1e-5);
}

TEST_P(CParallelLayerTest, TellsWhatAPassTook) {
  const std::string name = "qwen2-moe-e16k4";
  const std::vector<double> input = golden_values(name, "hidden_states");
  CGroup on(2, 0, places());
  CLayers layers(on);
  const auto syncs = [&] {
    std::uint64_t sum = 0;
    for (const ContextHandle& context : on.contexts) {
      auto info = sized<moecl_context_info>();
      EXPECT_OK(moecl_context_describe(context, &info));
      EXPECT_GT(info.kernels_launched, 0U);
      sum += info.host_syncs;
    }
    return sum;
  };
  for (const moecl_strategy strategy : c_strategies) {
    SCOPED_TRACE(strategy);
    auto options = sized<moecl_parallel_options>();
    options.strategy = strategy;
    layers.load(name, options);
    const std::vector<std::vector<double>> inputs = dealt(input, 64, 2, {5, 28});
    std::vector<moecl_forward_args> args(2, sized<moecl_forward_args>());
    for (std::size_t rank = 0; rank < 2; ++rank) {
      args[rank].tokens = static_cast<std::int64_t>(inputs[rank].size() / 64);
      args[rank].x = on.allocate<float>(rank, {inputs[rank].begin(), inputs[rank].end()});
      args[rank].out = on.allocate(rank, std::vector<float>(inputs[rank].size()));
    }
    const auto pass = [&](std::size_t rank, moecl_communicator*) {
      EXPECT_OK(moecl_parallel_layer_forward(layers.of_rank[rank], &args[rank]));
    };
    on.run(pass);  // the first pass may map the memory of peers
    const std::uint64_t before = syncs();
    on.run(pass);
    EXPECT_EQ(syncs() - before, strategy == MOECL_STRATEGY_ALL2ALL_V ? 2U : 0U);
    on.run([&](std::size_t rank, moecl_communicator*) { EXPECT_OK(moecl_stream_finish(on.streams[rank])); });
    for (std::size_t rank = 0; rank < 2; ++rank) {
      const moecl_parallel_layer_info info = layers.info(rank);
      EXPECT_EQ(info.hidden, 64);
      EXPECT_EQ(info.experts, 16);
      EXPECT_EQ(info.top_k, 4);
      EXPECT_EQ(info.dtype, MOECL_F32);
      EXPECT_EQ(info.places, 8);
      EXPECT_EQ(info.first_place, rank == 0 ? 0 : 8);
      EXPECT_GT(info.weight_bytes, 0U);
      EXPECT_GT(info.workspace_bytes, 0U);
      EXPECT_EQ(info.bytes_between_nodes, 0U);
      EXPECT_GT(info.bytes_received, 0U);
      if (strategy != MOECL_STRATEGY_ALL_GATHER) continue;
      // dispatch/STRATEGIES.md: the other rank's tokens with ids and weights, and its sums for this rank's tokens.
      const std::uint64_t mine = rank == 0 ? 5 : 28, theirs = 33 - mine;
      EXPECT_EQ(info.bytes_received, theirs * (64 * 4 + 8 * 4) + mine * 64 * 4);
    }
  }
}

TEST(CParallelLayer, ChoosesByTheTokensThatWillCome) {
  CGroup on(2);
  CLayers layers(on);
  auto options = sized<moecl_parallel_options>();
  options.max_tokens = 512;
  layers.load("qwen2-moe-e16k4", options);
  EXPECT_EQ(layers.info(0).strategy, MOECL_STRATEGY_MC2);
  EXPECT_THAT(layers.info(0).strategy_reason, testing::HasSubstr("at most 512 tokens a dp rank fit windows of 512"));
  options.max_tokens = 513;
  options.placement = MOECL_PLACE_ROUND_ROBIN;
  layers.load("qwen2-moe-e16k4", options);
  EXPECT_EQ(layers.info(1).strategy, MOECL_STRATEGY_ALL2ALL_V);
  EXPECT_THAT(layers.info(1).strategy_reason, testing::HasSubstr("513 tokens on a dp rank exceed"));
  EXPECT_EQ(layers.info(1).placement, MOECL_PLACE_LINEAR);
  EXPECT_THAT(layers.info(1).placement_reason, testing::HasSubstr("the router has no expert groups"));
  options.max_tokens = 0;
  layers.load("qwen2-moe-e16k4", options);
  EXPECT_EQ(layers.info(0).strategy, MOECL_STRATEGY_ALL2ALL_V);
  EXPECT_THAT(layers.info(0).strategy_reason, testing::HasSubstr("nobody says how many tokens"));
}

TEST(CParallelLayer, GridsOfContextAndSequenceParallelismFlatten) {
  const std::vector<double> input = golden_values("mixtral-e8k2", "hidden_states"),
                            output = golden_values("mixtral-e8k2", "output");
  for (const bool sequence : {false, true}) {
    CGroup on(4);
    CLayers layers(on);
    auto parallel = sized<moecl_parallel_options>();
    parallel.strategy = MOECL_STRATEGY_ALL_GATHER;
    parallel.tp = parallel.pcp = 2;
    parallel.sp = sequence ? 2 : 1;
    layers.load("mixtral-e8k2", parallel);
    const std::ptrdiff_t hidden = layers.info(0).hidden, tokens = std::ssize(input) / hidden;
    std::vector<std::vector<double>> of_ranks, expected;
    for (std::int32_t rank = 0; rank < 4; ++rank) {
      const auto info = layers.info(static_cast<std::size_t>(rank));
      EXPECT_EQ(info.dp_rank, 0);
      EXPECT_EQ(info.pcp_rank, rank / 2);
      EXPECT_EQ(info.tp_rank, rank % 2);
      // The ranks of a pcp group have different tokens; those of a tp group the same, unless sequences are parallel.
      const std::ptrdiff_t shares = sequence ? 4 : 2, share = sequence ? rank : rank / 2;
      const std::ptrdiff_t begin = tokens * share / shares * hidden, end = tokens * (share + 1) / shares * hidden;
      of_ranks.emplace_back(input.begin() + begin, input.begin() + end);
      expected.emplace_back(output.begin() + begin, output.begin() + end);
    }
    const auto passes = layers.forward(of_ranks);
    for (std::size_t rank = 0; rank < 4; ++rank)
      EXPECT_LE(relative_error({passes[rank].out.begin(), passes[rank].out.end()}, expected[rank]), 1e-5);
  }
}

TEST(CParallelLayer, WaitsForEventsAndGivesOne) {
  CGroup on(2);
  CLayers layers(on);
  auto parallel = sized<moecl_parallel_options>();
  parallel.strategy = MOECL_STRATEGY_MC2;  // all-to-all would wait for the event, to read sizes
  layers.load("mixtral-e8k2", parallel);
  const std::vector<double> input = golden_values("mixtral-e8k2", "hidden_states"),
                            output = golden_values("mixtral-e8k2", "output");
  const std::size_t hidden = static_cast<std::size_t>(layers.info(0).hidden), tokens = input.size() / hidden;
  std::vector<float> got(input.size());
  on.run([&](std::size_t rank, moecl_communicator*) {
    cl_int status = CL_SUCCESS;
    cl_event written = clCreateUserEvent(std::next(on.callers.begin(), on.place(rank))->context, &status);
    ASSERT_EQ(status, CL_SUCCESS);
    auto args = sized<moecl_forward_args>();
    args.tokens = rank == 0 ? static_cast<std::int64_t>(tokens) : 0;
    const std::size_t elements = rank == 0 ? input.size() : 0;
    args.x = on.allocate(rank, std::vector<float>(elements));
    args.out = on.allocate(rank, std::vector<float>(elements));
    cl_event done = nullptr;
    EXPECT_OK(moecl_parallel_layer_forward_events(layers.of_rank[rank], &args, nullptr, 1, &written, &done));
    ASSERT_NE(done, nullptr);
    cl_int state = CL_COMPLETE;
    clGetEventInfo(done, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(state), &state, nullptr);
    EXPECT_NE(state, CL_COMPLETE);
    if (rank == 0) {  // x comes only now, on another queue
      const std::vector<float> x(input.begin(), input.end());
      EXPECT_EQ(clEnqueueWriteBuffer(on.callers.front().queue, args.x.memory, CL_TRUE, 0, x.size() * sizeof(float),
                                     x.data(), 0, nullptr, nullptr),
                CL_SUCCESS);
    }
    clSetUserEventStatus(written, CL_COMPLETE);
    EXPECT_EQ(clWaitForEvents(1, &done), CL_SUCCESS);
    clReleaseEvent(written);
    clReleaseEvent(done);
    if (rank == 0) got = on.read<float>(0, args.out, elements);
    EXPECT_NE(moecl_parallel_layer_forward_events(layers.of_rank[rank], &args, nullptr, 1, nullptr, nullptr), MOECL_OK);
    EXPECT_THAT(moecl_last_error_message(), testing::HasSubstr("wait"));
  });
  EXPECT_LE(relative_error({got.begin(), got.end()}, output), 1e-5);
}

}  // namespace
}  // namespace moecl::test
