// A layer over ranks through the C interface: the goldens, and the bits of the C++ layer of the same plan.
#include <moecl/parallel_layer.h>

#include <gmock/gmock.h>

#include <list>

#include "tests/host/c_golden.hpp"
#include "tests/host/c_layers.hpp"
#include "tests/host/ranked_model.hpp"

namespace moecl::test {
namespace {

constexpr moecl_strategy strategies[] = {MOECL_STRATEGY_MC2, MOECL_STRATEGY_ALL_GATHER, MOECL_STRATEGY_ALL2ALL_V,
                                         MOECL_STRATEGY_MULTICAST};

struct Place {
  const char* name;
  bool first, last;
};

class CParallelLayerTest : public testing::TestWithParam<Place> {
 protected:
  std::vector<const TestDevice*> places() const {
    std::vector<const TestDevice*> on;
    if (GetParam().first) on.push_back(devices().front().get());
    if (GetParam().last) on.push_back(devices().back().get());
    return on;
  }
  Ranks::Places same_places() const {
    return !GetParam().last ? Ranks::first_device : GetParam().first ? Ranks::all_platforms : Ranks::last_device;
  }
};
INSTANTIATE_TEST_SUITE_P(Places, CParallelLayerTest,
                         testing::Values(Place{"first_device", true, false}, Place{"last_device", false, true},
                                         Place{"all_platforms", true, true}),
                         [](const auto& param) { return std::string(param.param.name); });

TEST_P(CParallelLayerTest, GoldensWithEveryOption) {
  using Options = moecl_parallel_options;
  struct Case {
    const char* model;
    std::int32_t ranks;
    std::vector<std::int64_t> tokens;  ///< of each dp rank, or where every rank has its own of each
    std::function<void(Options&)> options = [](Options&) {};
    std::function<void(ParallelPlan&, RankedOptions&)> plan = [](ParallelPlan&, RankedOptions&) {};
    bool whole_experts = true;
    double tolerance = 1e-5;  ///< of the golden
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
    for (const moecl_strategy strategy : strategies) {
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
      Ranks cpp(c.ranks, same_places());
      const Outputs expected = of_ranks(cpp, model, plan, std::max(options.tp, 1), c.tokens, false, ranked);
      EXPECT_EQ(ids, expected.ids);
      if (GetParam().first != GetParam().last) {
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
    // dispatch/STRATEGIES.md: the tokens of the ranks of one index with ids and weights, and a sum for each own token.
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
  for (const moecl_strategy strategy : strategies) {
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
    on.run(pass);  // the first one may map the memory of peers
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
      // dispatch/STRATEGIES.md: the other rank's tokens with ids and weights, and its sums for this rank's.
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

TEST(CParallelLayer, TakesRawWeightsOtherWeightsAndFinishedTokens) {
  RawWeights raw;
  const std::vector<double> input = golden_values(golden_name, "hidden_states"),
                            golden = golden_values(golden_name, "output");
  CGroup on(3);
  CLayers layers(on);
  on.run([&](std::size_t rank, moecl_communicator* communicator) {
    ASSERT_OK(moecl_parallel_layer_create(communicator, &raw.desc, nullptr, nullptr, layers.of_rank[rank].out()));
  });
  const auto output = [&](const std::vector<std::uint8_t>& finished = {}) {
    std::vector<double> all;
    for (const CLayers::Pass& pass : layers.forward(dealt(input, 96, 3, {11, 11, 11}), finished)) {
      all.insert(all.end(), pass.out.begin(), pass.out.end());
      if (finished.empty()) continue;
      EXPECT_THAT(pass.ids, testing::Each(-1));
      EXPECT_THAT(pass.routed, testing::Each(0));
    }
    return all;
  };
  const std::vector<double> first = output();
  EXPECT_LE(relative_error(first, golden), 1e-5);
  output(std::vector<std::uint8_t>(11, 1));

  std::reverse(raw.down.begin(), raw.down.end());  // other numbers, whatever their bytes say
  for (auto number = raw.down.begin(); number != raw.down.end(); number += 4) std::reverse(number, number + 4);
  for (const ParallelLayerHandle& layer : layers.of_rank) EXPECT_OK(moecl_parallel_layer_replace(layer, &raw.desc));
  EXPECT_GT(relative_error(output(), golden), 1e-2);
  const std::string dir = golden_dir(golden_name), other = golden_dir("mixtral-e8k2");
  for (const ParallelLayerHandle& layer : layers.of_rank)
    EXPECT_OK(moecl_parallel_layer_reload(layer, dir.c_str(), -1));
  EXPECT_EQ(output(), first);
  raw.desc.experts = 31;
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "31 experts, the layer has 32",
               moecl_parallel_layer_replace(layers.of_rank[0], &raw.desc));
  EXPECT_NE(moecl_parallel_layer_reload(layers.of_rank[0], other.c_str(), -1), MOECL_OK);
  EXPECT_EQ(output(), first);  // the group is whole
}

TEST(CParallelLayer, TakesTheCallersRouting) {
  CGroup on(2);
  CLayers layers(on);
  auto options = sized<moecl_parallel_options>();
  options.redundant_experts = 2;  // experts have other places than their numbers
  layers.load("qwen2-moe-e16k4", options);
  const auto inputs = dealt(golden_values("qwen2-moe-e16k4", "hidden_states"), 64, 2, {20, 13});
  const std::vector<CLayers::Pass> own = layers.forward(inputs), given = layers.forward(inputs, {}, own);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(given[rank].out, own[rank].out);
    EXPECT_EQ(given[rank].routed, own[rank].routed);
  }
  std::vector<CLayers::Pass> reversed = own;
  for (CLayers::Pass& pass : reversed) std::reverse(pass.weights.begin(), pass.weights.end());
  EXPECT_NE(layers.forward(inputs, {}, reversed)[0].out, own[0].out);
}

/// The golden routing and outputs of a model's first tokens.
struct CGolden {
  std::vector<double> x, logits, ids, weights, out, routed, shared, counts;
  explicit CGolden(const std::string& name)
      : x(golden_values(name, "hidden_states")),
        logits(golden_values(name, "router_logits")),
        ids(golden_values(name, "topk_ids")),
        weights(golden_values(name, "topk_weights")),
        out(golden_values(name, "output")),
        routed(golden_values(name, "routed_output")),
        shared(golden_values(name, "shared_output")),
        counts(golden_values(name, "expert_counts")) {}
};

/// Rows [first, first + count) of a matrix as numbers of another type.
template <class T>
std::vector<T> rows_of(const std::vector<double>& matrix, std::int64_t width, std::int64_t first, std::int64_t count) {
  const auto begin = matrix.begin() + first * width;
  return {begin, begin + count * width};
}

TEST(CParallelLayer, TakesRoutingInEveryFormAndGivesPartsApart) {
  const std::string name = "qwen2-moe-e16k4";
  const CGolden golden(name);
  for (const std::int32_t ranks : {1, 2, 3, 4, 8}) {
    CGroup on(ranks);
    CLayers layers(on);
    layers.load(name, sized<moecl_parallel_options>());
    for (const moecl_strategy strategy : strategies)
      for (const int form : {0, 1, 2, 3}) {  // logits, ids, ids of 64 bits, the router; the last chooses in 64 bits
        SCOPED_TRACE(testing::Message() << ranks << " ranks, strategy " << strategy << ", form " << form);
        std::vector<std::vector<double>> out(4);
        std::vector<std::vector<double>> parts[4];
        for (auto& of_ranks : parts) of_ranks.resize(static_cast<std::size_t>(ranks));
        on.run([&](std::size_t rank, moecl_communicator*) {
          const std::int64_t each = ranks == 8 ? 5 : 11,
                             first = std::min(static_cast<std::int64_t>(rank) * each, std::int64_t{33}),
                             tokens = rank + 1 == on.streams.size() ? 33 - first : std::min(each, 33 - first);
          const auto places = static_cast<std::size_t>(layers.info(rank).places);
          const bool wide = form >= 2;
          auto args = sized<moecl_forward_args>();
          args.tokens = tokens;
          args.x = on.allocate(rank, rows_of<float>(golden.x, 64, first, tokens));
          args.ids_dtype = wide ? MOECL_I64 : MOECL_I32;
          if (form == 0) args.given_logits = on.allocate(rank, rows_of<float>(golden.logits, 16, first, tokens));
          if (form == 1) args.ids = on.allocate(rank, rows_of<std::int32_t>(golden.ids, 4, first, tokens));
          if (form == 2) args.ids = on.allocate(rank, rows_of<std::int64_t>(golden.ids, 4, first, tokens));
          if (form == 1 || form == 2)
            args.weights = on.allocate(rank, rows_of<float>(golden.weights, 4, first, tokens));
          const auto elements = static_cast<std::size_t>(tokens * 64), slots = static_cast<std::size_t>(tokens * 4);
          if (form == 3) args.topk_ids = on.allocate(rank, std::vector<std::int64_t>(slots));
          if (form != 1) args.out = on.allocate(rank, std::vector<float>(elements));
          args.routed_out = on.allocate(rank, std::vector<float>(elements));
          args.shared_out = on.allocate(rank, std::vector<float>(elements));
          args.expert_num_tokens = wide ? on.allocate(rank, std::vector<std::int64_t>(places))
                                        : on.allocate(rank, std::vector<std::int32_t>(places));
          args.expert_load = on.allocate(rank, std::vector<std::int64_t>(places, 1));  // to which the pass adds
          auto step = sized<moecl_step>();
          step.strategy = strategy;
          ASSERT_OK(moecl_parallel_layer_forward_step(layers.of_rank[rank], &args, &step));
          std::vector<double> load;
          for (const std::int64_t rows : on.read<std::int64_t>(rank, args.expert_load, places))
            load.push_back(static_cast<double>(rows - 1));
          const auto keep = [&](std::size_t part, const auto& values) {
            parts[part][rank].assign(values.begin(), values.end());
          };
          if (form != 1) keep(0, on.read(rank, args.out, elements));
          keep(1, on.read(rank, args.routed_out, elements));
          keep(2, on.read(rank, args.shared_out, elements));
          if (wide)
            keep(3, on.read<std::int64_t>(rank, args.expert_num_tokens, places));
          else
            keep(3, on.read<std::int32_t>(rank, args.expert_num_tokens, places));
          EXPECT_EQ(load, parts[3][rank]);
          if (form == 3) {
            EXPECT_EQ(on.read<std::int64_t>(rank, args.topk_ids, slots),
                      rows_of<std::int64_t>(golden.ids, 4, first, tokens));
          }
        });
        ASSERT_EQ(on.failure(), "");
        for (std::size_t part = 0; part < 4; ++part)
          for (const std::vector<double>& of_rank : parts[part])
            out[part].insert(out[part].end(), of_rank.begin(), of_rank.end());
        if (form != 1) {
          EXPECT_LE(relative_error(out[0], golden.out), 1e-5);
        }
        EXPECT_LE(relative_error(out[1], golden.routed), 1e-5);
        EXPECT_LE(relative_error(out[2], golden.shared), 1e-5);
        EXPECT_EQ(out[3], golden.counts);
      }
  }
}

TEST(CParallelLayer, PartialSumsAndAWorkspaceOfTheCallers) {
  const std::string name = "qwen2-moe-e16k4";
  const CGolden golden(name);
  CGroup on(2);
  CLayers layers(on);
  auto options = sized<moecl_parallel_options>();
  options.tp = 2;
  layers.load(name, options);
  for (const moecl_strategy strategy : strategies) {
    SCOPED_TRACE(strategy);
    std::vector<double> sums;
    on.run([&](std::size_t rank, moecl_communicator* communicator) {
      auto step = sized<moecl_step>();
      step.strategy = strategy;
      step.partial_sums = 1;
      step.max_tokens_across_dp = 33;
      std::uint64_t bytes = 0;
      ASSERT_OK(moecl_parallel_layer_workspace_bytes(layers.of_rank[rank], &step, &bytes));
      auto args = sized<moecl_forward_args>();
      args.tokens = 33;
      args.x = on.allocate(rank, rows_of<float>(golden.x, 64, 0, 33));
      args.out = on.allocate(rank, std::vector<float>(33 * 64));
      args.workspace = on.allocate(rank, std::vector<std::uint8_t>(bytes));
      ASSERT_OK(moecl_parallel_layer_forward_step(layers.of_rank[rank], &args, &step));
      ASSERT_OK(moecl_all_reduce(communicator, args.out, MOECL_F32, 33, 64));
      const std::vector<float> all = on.read(rank, args.out, 33 * 64);
      if (rank == 0) sums.assign(all.begin(), all.end());
    });
    ASSERT_EQ(on.failure(), "");
    EXPECT_LE(relative_error(sums, golden.out), 1e-5);
  }
}

TEST(CParallelLayer, AStepIsAgreedOnceForAllLayers) {
  const std::string name = "qwen2-moe-e16k4";
  const CGolden golden(name);
  const std::int64_t counts[] = {5, 28}, ends[] = {5, 33};
  CGroup on(2);
  CLayers first(on), second(on);
  auto options = sized<moecl_parallel_options>();
  options.rules = MOECL_RULES_A3;
  first.load(name, options);
  second.load(name, options);
  std::vector<std::vector<float>> rows(2);
  on.run([&](std::size_t rank, moecl_communicator* communicator) {
    const auto meetings = [&] {
      auto info = sized<moecl_communicator_info>();
      EXPECT_OK(moecl_communicator_describe(communicator, &info));
      return info.meetings;
    };
    const std::int64_t tokens = counts[rank];
    auto step = sized<moecl_step>();
    step.num_tokens_across_dp = counts;
    moecl_agreed_step* agreed = nullptr;
    const std::uint64_t before = meetings();
    ASSERT_OK(moecl_parallel_layer_agree(first.of_rank[rank], &step, tokens, &agreed));
    EXPECT_EQ(meetings() - before, 1U);
    auto args = sized<moecl_forward_args>();
    args.tokens = tokens;
    args.x = on.allocate(rank, rows_of<float>(golden.x, 64, rank == 0 ? 0 : 5, tokens));
    args.out = on.allocate(rank, std::vector<float>(static_cast<std::size_t>(tokens) * 64));
    for (const CLayers* layers : {&first, &second}) {
      const std::uint64_t of_layer = meetings();
      ASSERT_OK(moecl_parallel_layer_forward_agreed(layers->of_rank[rank], &args, agreed));
      EXPECT_EQ(meetings() - of_layer, 2U);
    }
    EXPECT_EQ(second.info(rank).strategy, MOECL_STRATEGY_MC2);
    EXPECT_THAT(second.info(rank).strategy_reason, testing::HasSubstr("rules a3; at most 28 tokens"));
    EXPECT_OK(moecl_agreed_step_destroy(agreed));
    rows[rank] = on.read(rank, args.out, static_cast<std::size_t>(tokens) * 64);
    step.num_tokens_across_dp = nullptr;
    step.cu_tokens_across_dp = ends;
    ASSERT_OK(moecl_parallel_layer_agree(first.of_rank[rank], &step, tokens, &agreed));
    EXPECT_OK(moecl_agreed_step_destroy(agreed));
  });
  ASSERT_EQ(on.failure(), "");
  std::vector<double> out(rows[0].begin(), rows[0].end());
  out.insert(out.end(), rows[1].begin(), rows[1].end());
  EXPECT_LE(relative_error(out, golden.out), 1e-5);
  EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "layer: the pointer is null",
               moecl_parallel_layer_agree(nullptr, nullptr, 1, nullptr));
  EXPECT_OK(moecl_agreed_step_destroy(nullptr));
}

// Steps of decoding and prefill in turn, of layers that share memory, against each layer alone in a group of its own.
TEST(CParallelLayer, FourLayersGiveTheBitsOfLayersAlone) {
  struct Turn {
    moecl_strategy strategy;
    std::vector<std::int64_t> tokens;  ///< of each rank
  };
  const Turn turns[] = {{MOECL_STRATEGY_MC2, {2, 2}},
                        {MOECL_STRATEGY_ALL2ALL_V, {20, 13}},
                        {MOECL_STRATEGY_MC2, {2, 1}},
                        {MOECL_STRATEGY_ALL_GATHER, {20, 13}}};
  const std::string name = "qwen2-moe-e16k4";
  const std::vector<double> input = golden_values(name, "hidden_states");
  using Rows = std::vector<std::vector<float>>;  // of each rank
  const auto through = [](CGroup& on, const std::list<CLayers>& layers, const Turn& turn, Rows x) {
    on.run([&](std::size_t rank, moecl_communicator*) {
      auto args = sized<moecl_forward_args>();
      args.tokens = turn.tokens[rank];
      args.x = on.allocate(rank, x[rank]);
      auto step = sized<moecl_step>();
      step.strategy = turn.strategy;
      moecl_agreed_step* agreed = nullptr;
      ASSERT_OK(moecl_parallel_layer_agree(layers.front().of_rank[rank], &step, args.tokens, &agreed));
      for (const CLayers& layer : layers) {
        args.out = on.allocate(rank, std::vector<float>(x[rank].size()));
        ASSERT_OK(moecl_parallel_layer_forward_agreed(layer.of_rank[rank], &args, agreed));
        args.x = args.out;
      }
      x[rank] = on.read(rank, args.out, x[rank].size());
      EXPECT_OK(moecl_agreed_step_destroy(agreed));
    });
    EXPECT_EQ(on.failure(), "");
    return x;
  };
  CGroup shared(2);
  std::list<CLayers> layers;
  for (int i = 0; i < 4; ++i) layers.emplace_back(shared).load(name, sized<moecl_parallel_options>());
  for (const Turn& turn : turns) {
    SCOPED_TRACE(turn.strategy);
    Rows x, alone;
    for (const std::vector<double>& rows : dealt(input, 64, 2, turn.tokens)) x.emplace_back(rows.begin(), rows.end());
    alone = x;
    for (int i = 0; i < 4; ++i) {
      CGroup own(2);
      std::list<CLayers> one;
      one.emplace_back(own).load(name, sized<moecl_parallel_options>());
      alone = through(own, one, turn, alone);
    }
    EXPECT_EQ(through(shared, layers, turn, x), alone);
  }
}

TEST(CParallelLayer, RefusesStepsThatCannotBe) {
  CGroup on(2);
  CLayers layers(on);
  layers.load("qwen2-moe-e16k4", sized<moecl_parallel_options>());
  std::uint64_t bytes = 0;
  auto step = sized<moecl_step>();
  const auto refused = [&](const char* text) {
    EXPECT_FAILS(MOECL_INVALID_ARGUMENT, text, moecl_parallel_layer_workspace_bytes(layers.of_rank[0], &step, &bytes));
  };
  refused("max_tokens_across_dp, which the step does not say");
  step.max_tokens_across_dp = -1;
  refused("step.max_tokens_across_dp: -1 is negative");
  step = sized<moecl_step>();
  step.strategy = 5;
  refused("step.strategy: 5 is not in [0, 4]");
  step.size_bytes = 0;
  refused("step");
  EXPECT_EQ(bytes, 0U);
  on.run([&](std::size_t rank, moecl_communicator*) {
    auto args = sized<moecl_forward_args>();
    args.tokens = 2;
    args.x = on.allocate(rank, std::vector<float>(128));
    args.out = on.allocate(rank, std::vector<float>(128));
    auto mine = sized<moecl_step>();
    mine.strategy = rank == 0 ? MOECL_STRATEGY_MC2 : MOECL_STRATEGY_ALL2ALL_V;
    EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "strategy: rank 1 has all2allv, rank 0 has mc2",
                 moecl_parallel_layer_forward_step(layers.of_rank[rank], &args, &mine));
  });
}

TEST(CParallelLayer, RefusesWhatCannotBe) {
  const std::string dir = golden_dir("qwen2-moe-e16k4");
  using Options = moecl_parallel_options;
  /// A refusal ends the group, so that nobody waits for this rank.
  const auto refuses = [&](moecl_status status, const char* text, const std::function<void(Options&)>& spoil) {
    SCOPED_TRACE(text);
    CGroup on(2);
    auto options = sized<Options>();
    spoil(options);
    ParallelLayerHandle layer;
    EXPECT_FAILS(status, text,
                 moecl_parallel_layer_load(on.communicators[1], dir.c_str(), -1, &options, nullptr, layer.out()));
    EXPECT_EQ(layer, nullptr);
    EXPECT_THAT(on.failure(), testing::AllOf(testing::StartsWith("rank 1: "), testing::HasSubstr(text)));
  };
  const moecl_status invalid = MOECL_INVALID_ARGUMENT;
  refuses(invalid, "size_bytes is 0", [](Options& o) { o.size_bytes = 0; });
  refuses(invalid, "parallel.strategy: 5 is not in [0, 4]", [](Options& o) { o.strategy = 5; });
  refuses(invalid, "parallel.expert_sharding: 2 is not in [0, 1]", [](Options& o) { o.expert_sharding = 2; });
  refuses(invalid, "parallel.placement: -1 is not in [0, 1]", [](Options& o) { o.placement = -1; });
  refuses(invalid, "parallel.wire: 4 is not in [0, 3]", [](Options& o) { o.wire = 4; });
  refuses(invalid, "parallel.shared_sharding: 3 is not in [0, 2]", [](Options& o) { o.shared_sharding = 3; });
  refuses(invalid, "parallel.tp: 3 does not divide 2 ranks", [](Options& o) { o.tp = 3; });
  refuses(invalid, "parallel.pcp: 4 does not divide 2 groups of tp", [](Options& o) { o.pcp = 4; });
  refuses(invalid, "parallel.sp: 2 is neither 1 nor tp, 1", [](Options& o) { o.sp = 2; });
  refuses(invalid, "parallel.reserved: 1 is not 0", [](Options& o) { o.reserved = 1; });
  refuses(invalid, "redundant", [](Options& o) { o.redundant_experts = 1; });
  refuses(invalid, "dbo_prefill_token_threshold: -1 is negative",
          [](Options& o) { o.dbo_prefill_token_threshold = -1; });
  refuses(invalid, "dbo_decode_token_threshold: -2 is negative", [](Options& o) { o.dbo_decode_token_threshold = -2; });
  refuses(invalid, "parallel.rules: 6 is not in [0, 5]", [](Options& o) { o.rules = 6; });
  refuses(invalid, "-4 tokens", [](Options& o) { o.max_tokens = -4; });
  refuses(invalid, "nodes of 3 do not divide 2 ranks", [](Options& o) { o.ranks_per_node = 3; });
  refuses(invalid, "ranks that divide every expert have all of them",
          [](Options& o) { o.expert_sharding = MOECL_SHARD_INTERMEDIATE, o.redundant_experts = 2; });
  refuses(MOECL_UNSUPPORTED, "strategy mc2: sends tokens to whole experts",
          [](Options& o) { o.expert_sharding = MOECL_SHARD_INTERMEDIATE, o.strategy = MOECL_STRATEGY_MC2; });

  moecl_parallel_layer* made = nullptr;
  EXPECT_FAILS(invalid, "communicator: the pointer is null",
               moecl_parallel_layer_load(nullptr, dir.c_str(), -1, nullptr, nullptr, &made));
  EXPECT_FAILS(invalid, "layer: the pointer is null", moecl_parallel_layer_forward(nullptr, nullptr));
  EXPECT_FAILS(invalid, "layer: the pointer is null", moecl_parallel_layer_reload(nullptr, dir.c_str(), -1));
  EXPECT_FAILS(invalid, "layer: the pointer is null", moecl_parallel_layer_describe(nullptr, nullptr));
}

TEST(CParallelLayer, ARefusedPassEndsTheGroup) {
  const auto refuses = [](const char* text, const std::function<void(moecl_forward_args&, moecl_device_array)>& spoil) {
    SCOPED_TRACE(text);
    CGroup on(2);
    CLayers layers(on);
    layers.load("qwen2-moe-e16k4", sized<moecl_parallel_options>());
    on.run([&](std::size_t rank, moecl_communicator*) {
      auto args = sized<moecl_forward_args>();
      args.tokens = 2;
      args.x = on.allocate(rank, std::vector<float>(128));
      args.out = on.allocate(rank, std::vector<float>(128));
      if (rank == 1) spoil(args, args.out);
      const moecl_status status = moecl_parallel_layer_forward(layers.of_rank[rank], &args);
      EXPECT_EQ(status, rank == 1 ? MOECL_INVALID_ARGUMENT : MOECL_DEADLINE_EXCEEDED);
      EXPECT_THAT(moecl_last_error_message(), testing::HasSubstr(text));
    });
    EXPECT_THAT(on.failure(), testing::StartsWith("rank 1: "));
  };
  using Args = moecl_forward_args&;
  refuses("ids and weights: give both or neither", [](Args a, moecl_device_array any) { a.ids = any; });
  refuses("workspace: its size depends on max_tokens_across_dp",
          [](Args a, moecl_device_array any) { a.workspace = any; });
  refuses("workspace: workspace_bytes 8 of no cl_mem", [](Args a, moecl_device_array) { a.workspace_bytes = 8; });
  refuses("ids_dtype: expected i32 or i64, got f32", [](Args a, moecl_device_array) { a.ids_dtype = MOECL_F32; });
  refuses("logits_dtype", [](Args a, moecl_device_array) { a.logits_dtype = MOECL_I32; });
  refuses("out: absent", [](Args a, moecl_device_array) { a.out = {}; });
  refuses("give one of them", [](Args a, moecl_device_array any) { a.given_logits = a.ids = a.weights = any; });
  refuses("x: 3 rows of 256 bytes do not fit", [](Args a, moecl_device_array) { a.tokens = 3; });
  const CallersQueue other(*devices()[0]);
  cl_mem foreign = clCreateBuffer(other.context, CL_MEM_READ_WRITE, 4, nullptr, nullptr);
  refuses("finished: the cl_mem belongs to another cl_context",
          [&](Args a, moecl_device_array) { a.finished.memory = foreign; });
  clReleaseMemObject(foreign);
}

TEST(CParallelLayer, TakesAndTellsPlaces) {
  CGroup on(2);
  CLayers layers(on);
  const std::vector<std::int32_t> places = {5, 4, 3, 2, 1, 0, 6, 7, 5, 5};  // of eight experts, one thrice
  auto parallel = sized<moecl_parallel_options>();
  parallel.expert_of_place = places.data();
  parallel.places = static_cast<std::int32_t>(places.size());
  layers.load("mixtral-e8k2", parallel);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(layers.info(rank).all_places, 10);
    EXPECT_EQ(layers.info(rank).places, 5);
    std::vector<std::int32_t> told(10);
    EXPECT_OK(moecl_parallel_layer_places(layers.of_rank[rank], told.data(), 10));
    EXPECT_EQ(told, places);
    EXPECT_FAILS(MOECL_INVALID_ARGUMENT, "count: expected 10 places, got 9",
                 moecl_parallel_layer_places(layers.of_rank[rank], told.data(), 9));
    char text[64] = "unset";
    EXPECT_OK(moecl_parallel_layer_expert_map(layers.of_rank[rank], text, sizeof(text)));
    EXPECT_STREQ(text, rank == 0 ? "0->5, 1->4, 2->3, 3->2, 4->1" : "0->0, 1->6, 2->7, 3->5, 4->5");
  }
  const std::vector<double> input = golden_values("mixtral-e8k2", "hidden_states"),
                            output = golden_values("mixtral-e8k2", "output");
  const std::ptrdiff_t hidden = layers.info(0).hidden, half = 5 * hidden;
  const auto passes = layers.forward({{input.begin(), input.begin() + half}, {input.begin() + half, input.end()}});
  std::vector<double> got(passes[0].out.begin(), passes[0].out.end());
  got.insert(got.end(), passes[1].out.begin(), passes[1].out.end());
  EXPECT_LE(relative_error(got, output), 1e-5);
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
      // Ranks of pcp have other tokens, those of tp the same unless sequences are parallel.
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
