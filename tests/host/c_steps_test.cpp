// Steps of layers over ranks through the C interface.
#include <moecl/parallel_layer.h>

#include <gmock/gmock.h>

#include <list>

#include "tests/host/c_layers.hpp"

namespace moecl::test {
namespace {

TEST(CStepsTest, PartialSumsAndAWorkspaceOfTheCallers) {
  const std::string name = "qwen2-moe-e16k4";
  const CGolden golden(name);
  CGroup on(2);
  CLayers layers(on);
  auto options = sized<moecl_parallel_options>();
  options.tp = 2;
  layers.load(name, options);
  for (const moecl_strategy strategy : c_strategies) {
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

TEST(CStepsTest, AStepIsAgreedOnceForAllLayers) {
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

// Decoding and prefill steps in turn. Layers that share memory are compared with layers alone in groups of their own.
TEST(CStepsTest, FourLayersGiveTheBitsOfLayersAlone) {
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

/// How the tokens of a step come, and how many exchanges the step then takes.
struct StepCase {
  const char* name;
  std::int64_t padded;                 ///< rows of each rank, the last of them padding; 0: no padding
  std::int64_t most;                   ///< max_tokens_across_dp
  std::int32_t decode, micro_batches;  /// as in moecl_step
  std::int64_t chunk_tokens;           ///< option of the layer
  std::uint64_t exchanges;
};

// vLLM's dual batch overlap, together with padding and chunks. The thresholds here are 4 tokens for decoding and 29 for
// prefill. The rank with the most tokens brings 28.
TEST(CStepsTest, MicroBatchesPaddingAndChunksAreTheGolden) {
  const StepCase cases[] = {{"prefill below its threshold", 0, 0, 0, 0, 0, 1},
                            {"prefill bound at it", 0, 29, 0, 0, 0, 2},
                            {"decoding", 0, 0, 1, 0, 0, 2},
                            {"one micro-batch all the same", 0, 29, 1, 1, 0, 1},
                            {"two all the same", 0, 0, 0, 2, 0, 2},
                            {"padded below", 28, 28, 0, 0, 0, 1},
                            {"padded at it", 30, 0, 0, 0, 0, 2},
                            {"chunks", 0, 0, 0, 1, 7, 4},
                            {"chunks of a bound", 0, 29, 0, 1, 7, 5},
                            {"chunks in micro-batches, padded", 30, 31, 0, 2, 16, 4}};
  const std::int64_t tokens[] = {5, 0, 28}, hidden = 64;
  const CGolden golden("qwen2-moe-e16k4");
  CGroup on(3);
  for (const StepCase& c : cases) {
    CLayers layers(on);
    auto parallel = sized<moecl_parallel_options>();
    parallel.dbo_decode_token_threshold = 4;
    parallel.dbo_prefill_token_threshold = 29;
    auto options = sized<moecl_layer_options>();
    options.chunk_tokens = c.chunk_tokens;
    layers.load("qwen2-moe-e16k4", parallel, &options);
    for (const moecl_strategy strategy : c_strategies) {
      SCOPED_TRACE(testing::Message() << c.name << ", strategy " << strategy);
      std::vector<std::vector<double>> of_rank(3);
      on.run([&](std::size_t rank, moecl_communicator* communicator) {
        const std::int64_t rows = c.padded == 0 ? tokens[rank] : c.padded;
        std::vector<float> x = rows_of<float>(golden.x, hidden, rank == 2 ? 5 : 0, tokens[rank]);
        x.resize(static_cast<std::size_t>(rows * hidden), 1e30F);
        std::vector<std::uint8_t> mask(static_cast<std::size_t>(rows));
        std::fill(mask.begin() + tokens[rank], mask.end(), std::uint8_t{1});
        auto step = sized<moecl_step>();
        step.strategy = strategy;
        step.max_tokens_across_dp = c.most;
        step.uniform_decode = c.decode;
        step.micro_batches = c.micro_batches;
        if (c.padded != 0) step.finished = on.allocate(rank, mask), step.tokens = rows;
        moecl_agreed_step* agreed = nullptr;
        ASSERT_OK(moecl_parallel_layer_agree(layers.of_rank[rank], &step, rows, &agreed));
        const auto meetings = [&] {
          auto info = sized<moecl_communicator_info>();
          EXPECT_OK(moecl_communicator_describe(communicator, &info));
          return info.meetings;
        };
        auto args = sized<moecl_forward_args>();
        args.tokens = rows;
        args.x = on.allocate(rank, x);
        args.routed_out = on.allocate(rank, std::vector<float>(x.size()));
        const std::uint64_t before = meetings();
        ASSERT_OK(moecl_parallel_layer_forward_agreed(layers.of_rank[rank], &args, agreed));
        // The numbers of dispatch/STRATEGIES.md for ranks that events order.
        EXPECT_EQ(meetings() - before, c.exchanges * (strategy == MOECL_STRATEGY_MULTICAST ? 3 : 2));
        EXPECT_OK(moecl_agreed_step_destroy(agreed));
        const std::vector<float> routed = on.read(rank, args.routed_out, x.size());
        const auto end = routed.begin() + tokens[rank] * hidden;
        of_rank[rank].assign(routed.begin(), end);
        EXPECT_THAT(std::vector<float>(end, routed.end()), testing::Each(0));
      });
      ASSERT_EQ(on.failure(), "");
      of_rank[0].insert(of_rank[0].end(), of_rank[2].begin(), of_rank[2].end());
      EXPECT_LE(relative_error(of_rank[0], golden.routed), 1e-5);
    }
  }
}

TEST(CStepsTest, RefusesStepsThatCannotBe) {
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

}  // namespace
}  // namespace moecl::test
