// What a forward pass costs the host once its form is known.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "host/layer/layer_pass.hpp"
#include "runtime/kept_decisions.hpp"
#include "tests/dispatch/waiting_ranks.hpp"
#include "tests/host/ranked_model.hpp"
#include "tests/runtime/allocations.hpp"

namespace moecl::test {
namespace {

class WarmPassTest : public OnEveryDevice {};
MOECL_ON_EVERY_DEVICE(WarmPassTest);

TEST_P(WarmPassTest, AllocatesAsLittleAsThePassBefore) {
  for (const char* name_of : {"mixtral-skew", "qwen2-moe-e16k4"}) {
    const Model model(name_of);
    const StreamView stream = device().stream;
    const ContextCounters& counters = device().context->counters();
    const MoeLayer layer(stream, model.config.shape, find_layer_weights(model.checkpoint, model.config));
    for (const std::int64_t tokens : {std::int64_t{1}, std::int64_t{8}, model.tokens()}) {
      SCOPED_TRACE(testing::Message() << name_of << ", " << tokens << " tokens");
      const Buffer workspace(*stream.context, layer.workspace_bytes(tokens));
      const DeviceTensor x(stream, DType::f32, {tokens, model.hidden()},
                           {model.input.begin(), model.input.begin() + tokens * model.hidden()}),
          out(stream, DType::f32, {tokens, model.hidden()});
      MoeLayer::Forward args;
      args.x = x;
      args.out = out;
      args.workspace = workspace.view();
      std::uint64_t allocated[3], launched = 0;
      for (std::uint64_t& pass : allocated) {
        launched = counters.kernels_launched;
        const Allocations allocations;
        layer.forward(stream, args);
        pass = allocations.count();
        launched = counters.kernels_launched - launched;
        stream.finish();
      }
      EXPECT_GT(launched, 0U);
      EXPECT_EQ(allocated[2], 0U) << allocated[1] << " in the pass before";
    }
  }
}

TEST_P(WarmPassTest, AllocatesNothingUnderABudget) {
  const Model model("qwen2-moe-e16k4");
  const StreamView stream = device().stream;
  for (const MissedExperts missed : {MissedExperts::fetched, MissedExperts::in_place}) {
    SCOPED_TRACE(name(missed));
    MoeLayerOptions options = model.options;
    options.budget.percent = 50, options.budget.missed = missed;
    const MoeLayer layer(stream, model.config.shape, model.weights(0, model.config.shape.experts), options);
    const Buffer workspace(*stream.context, layer.workspace_bytes(2)),
        of_prefetch(*stream.context, layer.workspace_bytes(2));
    const DeviceTensor x(stream, DType::f32, {2, model.hidden()},
                         {model.input.begin(), model.input.begin() + 2 * model.hidden()}),
        out(stream, DType::f32, {2, model.hidden()});
    MoeLayer::Forward args;
    args.x = x;
    args.out = out;
    args.workspace = workspace.view();
    std::uint64_t allocated = 0;
    for (int pass = 0; pass < 3; ++pass) {
      const Allocations allocations;
      layer.prefetch(stream, args, of_prefetch.view());
      layer.forward(stream, args);
      allocated = allocations.count();
      stream.finish();
    }
    EXPECT_EQ(allocated, 0U);
    EXPECT_GT(layer.residency(stream).prefetched_hits, 0);
  }
}

TEST_P(WarmPassTest, APassOverRanksSelectsNothingTwice) {
  const Model model("qwen2-moe-e16k4");
  const std::int64_t tokens = 8;
  const Stream streams[] = {Stream(*device().context), Stream(*device().context)};
  for (const StrategyKind kind :
       {StrategyKind::mc2, StrategyKind::all_gather, StrategyKind::all2all_v, StrategyKind::multicast}) {
    SCOPED_TRACE(name(kind));
    RankGroup group({streams[0], streams[1]});
    group.run([&](Communicator& world) {
      const ExpertRank rank(world, 1, model.config.shape.experts);
      const StreamView stream = world.stream();
      const LayerParts parts(stream, model.config.shape, model.weights(rank.first_expert, rank.local_experts),
                             rank.local_experts, model.options, {});
      const auto strategy = Strategy::make(kind, rank, problem_of(model.config.shape, model.options));
      StepMemory memory;
      LayerPlans plans;
      const DeviceTensor x(stream, DType::f32, {tokens, model.hidden()},
                           {model.input.begin(), model.input.begin() + tokens * model.hidden()}),
          out(stream, DType::f32, {tokens, model.hidden()}), counts(stream, DType::i32, {rank.local_experts});
      MoeForward args;
      args.x = x;
      args.out = out;
      args.expert_num_tokens = counts;
      const Step step{kind};
      const auto pass = [&] {
        LayerPass(stream, {parts, plans, *strategy, &memory, nullptr, nullptr, step}, args,
                  {0, true, nullptr, 0, world.size() * tokens})
            .run();
        stream.finish();
      };
      pass();
      // The plans that a second pass would make if the first pass had not kept them.
      const auto again = [](auto plan) {
        ADD_FAILURE() << "made again";
        return plan;
      };
      const Device& on = *stream.device;
      const auto kept = plans.find(PassForm(on, args, step), [&]() -> LayerPlan {
        ADD_FAILURE() << "made again";
        throw std::runtime_error("no plan");
      });
      if (kind == StrategyKind::all2all_v)  // its sort contains the choice, and the router too
        kept->steps->route.find([&] { return again(route_tokens::Plan()); });
      else
        kept->steps->router.find(on, [&] { return again(grouped_gemm::Plan()); });
      std::int64_t source_rows = world.size() * tokens, rows = source_rows * model.config.shape.router.top_k;
      if (kind == StrategyKind::all2all_v) {
        const std::vector<double> of_experts = counts.values(stream);
        source_rows = rows = static_cast<std::int64_t>(std::accumulate(of_experts.begin(), of_experts.end(), 0.0));
      }
      const std::int64_t chosen = world.size() * tokens * model.config.shape.router.top_k;
      const StepPlans::Rows got{source_rows, rows, chosen * rank.local_experts / model.config.shape.experts};
      const std::shared_ptr<ReceivedPlans> received = kept->steps->received(got);
      received->routed.products.find(on, [&] { return again(ActivatedPlans()); });
      received->routed.second.find(on, [&] { return again(std::vector<grouped_gemm::Plan>()); });
      received->sum.with_shared.find([&] { return again(LaunchPlan()); });
      KeptDecisions& decisions = stream.context->decisions();
      world.share("decided", {});
      const std::uint64_t decided = decisions.made();
      EXPECT_GT(decided, 0U);
      world.share("again", {});
      pass();
      EXPECT_EQ(kept->steps->received(got), received);
      EXPECT_EQ(decisions.made(), decided) << "by the strategy's own operators";
    });
  }
}

TEST_P(WarmPassTest, ARankAloneTakesTheLaunchesAndBitsOfOneDevice) {
  for (const char* name_of : {"qwen3-moe-e64k8", "qwen2-moe-e16k4"}) {
    const Model model(name_of);
    const MoeShape& shape = model.config.shape;
    const StreamView stream = device().stream;
    const MoeLayer layer(stream, shape, model.weights(0, shape.experts), model.options);
    RankGroup group({stream});
    Communicator world = group.communicator(0);
    const ContextCounters& counters = device().context->counters();
    for (const std::int64_t tokens : {std::int64_t{5}, model.tokens()}) {
      const Buffer workspace(*stream.context, layer.workspace_bytes(tokens));
      std::uint64_t launched = counters.kernels_launched;
      const Outputs one = forward<MoeLayer::Forward>(stream, model, 0, tokens, [&](MoeLayer::Forward& args) {
        args.workspace = workspace.view();
        layer.forward(stream, args);
      });
      const std::uint64_t of_one = counters.kernels_launched - launched;
      for (const StrategyKind kind :
           {StrategyKind::mc2, StrategyKind::all_gather, StrategyKind::all2all_v, StrategyKind::multicast}) {
        SCOPED_TRACE(testing::Message() << name_of << ", " << tokens << " tokens, " << name(kind));
        ParallelLayer alone(ExpertRank(world, 1, shape.experts), {kind}, shape, model.weights(0, shape.experts),
                            model.options);
        launched = counters.kernels_launched;
        EXPECT_TRUE(one == forward<ParallelLayer::Forward>(stream, model, 0, tokens,
                                                           [&](ParallelLayer::Forward& args) { alone.forward(args); }));
        EXPECT_EQ(counters.kernels_launched - launched, of_one);
      }
    }
  }
}

/// Calls of operator new by the host threads of all ranks in a warm pass. All ranks count together, because the last
/// rank at a meeting collects its notes. The result is the min over some passes, because ranks of one context that
/// launch a kernel at once for the first time make another kernel.
std::uint64_t allocated_by_ranks(RankGroup& group, const Model& model, StrategyKind kind, bool agreed) {
  constexpr std::size_t passes = 6, warm = 3;
  std::array<std::atomic<std::uint64_t>, passes> allocated = {};
  group.run([&](Communicator& world) {
    const StreamView stream = world.stream();
    const MoeShape& shape = model.config.shape;
    const ExpertRank rank(world, 1, shape.experts);
    ParallelLayer layer(rank, {kind}, shape, model.weights(rank.first_expert, rank.local_experts), model.options);
    const std::int64_t tokens = 8;
    const DeviceTensor x(stream, DType::f32, {tokens, model.hidden()},
                         {model.input.begin(), model.input.begin() + tokens * model.hidden()}),
        out(stream, DType::f32, {tokens, model.hidden()});
    ParallelLayer::Forward args;
    args.x = x;
    args.out = out;
    const AgreedStep step = layer.agree({kind}, tokens);
    for (std::atomic<std::uint64_t>& of_pass : allocated) {
      const Allocations allocations;
      agreed ? layer.forward(args, step) : layer.forward(args);
      of_pass += allocations.count();
      stream.finish();
    }
  });
  return *std::min_element(allocated.begin() + warm, allocated.end());
}

/// The most allocations of two ranks: of a pass that asks whether the ranks agree, and of one where they have agreed.
struct OfRanks {
  StrategyKind kind;
  std::uint64_t asking, agreed;
};

void expect_allocations(RankGroup& group, const char* name_of, const std::vector<OfRanks>& most) {
  const Model model(name_of);
  for (const OfRanks& of : most) {
    SCOPED_TRACE(name(of.kind));
    EXPECT_LE(allocated_by_ranks(group, model, of.kind, false), of.asking);
    EXPECT_LE(allocated_by_ranks(group, model, of.kind, true), of.agreed);
  }
}

/// On PoCL, launches of one kernel on several queues take turns. How many allocations this costs depends on timing.
bool launches_take_turns(const TestDevice& device) {
  return device.caps().platform_name == "Portable Computing Language";
}

/// The same for two ranks of one context.
void expect_allocations(const TestDevice& device, const GroupOptions& options, const std::vector<OfRanks>& most) {
  if (launches_take_turns(device)) GTEST_SKIP() << "launches take turns";
  const Stream streams[] = {Stream(*device.context), Stream(*device.context)};
  RankGroup group({streams[0], streams[1]}, options);
  expect_allocations(group, "qwen2-moe-e16k4", most);
}

// An exchange of two ranks costs 16 allocations: its notes, and the lists of each note.
TEST_P(WarmPassTest, RanksAllocateForExchangesAlone) {
  expect_allocations(device(), {},
                     {{StrategyKind::mc2, 52, 32},
                      {StrategyKind::all_gather, 46, 26},
                      {StrategyKind::all2all_v, 48, 28},
                      {StrategyKind::multicast, 62, 42}});
}

// Each copy is a job with events of its own.
TEST_P(WarmPassTest, StagedCopiesAllocateJobs) {
  expect_allocations(device(), {std::chrono::minutes(1), TransportKind::staged},
                     {{StrategyKind::mc2, 94, 74},
                      {StrategyKind::all_gather, 90, 70},
                      {StrategyKind::all2all_v, 86, 66},
                      {StrategyKind::multicast, 126, 106}});
}

TEST(WarmPass, OfAnAgreedStepByPutWindowsAllocatesNothing) {
  if (!kernels_run_at_once()) GTEST_SKIP() << "one GPU need not run two kernels at once";
  TwoContexts on;
  expect_allocations(*on.group, "mixtral-skew", {{StrategyKind::mc2, 20, 0}});
}

}  // namespace
}  // namespace moecl::test
