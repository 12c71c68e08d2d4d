// What a warm pass over ranks costs the host: meetings with its peers, and stops for a device.
#include <gmock/gmock.h>

#include "tests/dispatch/waiting_ranks.hpp"
#include "tests/host/ranked_model.hpp"
#include "tests/runtime/blocking_calls.hpp"

namespace moecl::test {
namespace {

constexpr std::int64_t warm_tokens = 6;

/// A rank's tokens, and layers of a model: each layer's input is the output of the layer before.
struct LayersOfRank {
  std::vector<std::unique_ptr<ParallelLayer>> layers;
  DeviceTensor x, out;

  LayersOfRank(Communicator& world, const Model& model, const ParallelPlan& plan, std::int32_t tp, int count,
               std::int32_t ranks_per_node = 0)
      : x(world.stream(), model.options.dtype, {warm_tokens, model.hidden()},
          {model.input.begin(), model.input.begin() + warm_tokens * model.hidden()}),
        out(world.stream(), model.options.dtype, {warm_tokens, model.hidden()}) {
    const ExpertRank rank(world, tp, model.config.shape.experts, ExpertSharding::experts, ranks_per_node);
    for (int i = 0; i < count; ++i)
      layers.push_back(std::make_unique<ParallelLayer>(
          rank, plan, model.config.shape, model.weights(rank.first_expert, rank.local_experts), model.options));
  }
  template <class AnyStep>
  void pass(const AnyStep& step) {
    MoeForward args;
    args.x = x;
    args.out = out;
    for (const auto& layer : layers) {
      layer->forward(args, step);
      args.x = args.out;
    }
  }
};

struct HostCost {
  std::uint64_t meetings = 0, syncs = 0;
  std::vector<std::string> stops;  ///< of all ranks and their threads
  bool operator==(const HostCost&) const = default;
};
std::ostream& operator<<(std::ostream& to, const HostCost& cost) {
  return to << cost.meetings << " meetings, " << cost.syncs << " syncs, " << cost.stops.size() << " stops";
}

/// The cost of `pass` on this rank; `stops` has the calls that stopped any rank. All ranks call this together.
template <class Pass>
HostCost cost_of(Communicator& world, const Pass& pass) {
  world.stream().finish();
  world.share("warm", {});
  HostCost cost;
  const ContextCounters& counters = world.stream().context->counters();
  const std::uint64_t syncs = counters.host_syncs, meetings = world.meetings();
  const BlockingCalls calls;
  world.share("go", {});
  pass();
  cost.meetings = world.meetings() - meetings - 1;
  world.share("end", {});
  cost.syncs = (counters.host_syncs - syncs) / static_cast<std::uint64_t>(world.size());
  cost.stops = calls.names();
  world.share("counted", {});
  world.stream().finish();
  return cost;
}

struct Way {
  TransportKind transport;
  const char* name;
};
class HostMeetingsTest : public testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Transports, HostMeetingsTest,
                         testing::ValuesIn({Way{TransportKind::shared_context, "shared_context"},
                                            Way{TransportKind::staged, "staged"},
                                            Way{TransportKind::peer_window, "peer_window"}}),
                         [](const auto& param) { return std::string(param.param.name); });

TEST_P(HostMeetingsTest, OfAWarmPassAreCounted) {
  struct Case {
    StrategyKind kind;
    std::uint64_t meetings, of_tp_group;  ///< of one pass of an agreed step; what a tp group adds
  };
  const Case cases[] = {{StrategyKind::mc2, 2, 1},
                        {StrategyKind::all_gather, 2, 2},
                        {StrategyKind::all2all_v, 2, 1},
                        {StrategyKind::multicast, 3, 0}};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Model model("mixtral-skew", dtype);
    for (const std::int32_t tp : {1, 2})
      for (const Case& c : cases) {
        SCOPED_TRACE(testing::Message() << name(dtype) << ", tp " << tp << ", " << name(c.kind));
        Ranks on(4, Ranks::first_device, {std::chrono::milliseconds(60000), GetParam().transport});
        on.group.run([&](Communicator& world) {
          LayersOfRank of(world, model, {c.kind}, tp, 3);
          const AgreedStep step = of.layers[0]->agree({}, warm_tokens);
          of.pass(step);
          HostCost got = cost_of(world, [&] { of.pass(step); });
          const std::uint64_t each = c.meetings + (tp == 1 ? 0 : c.of_tp_group), layers = of.layers.size();
          EXPECT_EQ(got.meetings, layers * each);
          EXPECT_EQ(got.syncs, c.kind == StrategyKind::all2all_v ? layers : 0);
          // Between contexts a rank's copying threads wait for devices.
          if (GetParam().transport == TransportKind::shared_context && c.kind != StrategyKind::all2all_v) {
            EXPECT_THAT(got.stops, testing::IsEmpty());
          }
          got = cost_of(world, [&] { of.pass(Step{}); });
          EXPECT_EQ(got.meetings, layers * (each + 1)) << "a step of each layer's own";
        });
      }
  }
}

TEST_P(HostMeetingsTest, OfDividedSharedExpertsAreSaid) {
  struct Case {
    SharedSharding sharding;
    bool own_tokens;
    std::uint64_t meetings;  ///< of mc2: two, and one more for the sums of a tp group
  };
  const Model model("qwen2-moe-e16k4");
  for (const Case& c : {Case{SharedSharding::replicated, false, 3}, Case{SharedSharding::tokens, false, 3 + 2},
                        Case{SharedSharding::intermediate, false, 2 + 2}, Case{SharedSharding::tokens, true, 2},
                        Case{SharedSharding::intermediate, true, 2 + 3}}) {
    SCOPED_TRACE(testing::Message() << name(c.sharding) << (c.own_tokens ? ", own tokens" : ""));
    Ranks on(4, Ranks::first_device, {std::chrono::milliseconds(60000), GetParam().transport});
    ParallelPlan plan;
    plan.shared_sharding = c.sharding;
    plan.replace_allreduce = c.own_tokens;
    on.group.run([&](Communicator& world) {
      LayersOfRank of(world, model, plan, 2, 2);
      const AgreedStep step = of.layers[0]->agree({}, warm_tokens);
      of.pass(step);
      EXPECT_EQ(cost_of(world, [&] { of.pass(step); }).meetings, 2 * c.meetings);
    });
  }
}

TEST_P(HostMeetingsTest, OverNodesAreThoseOfTwoLevels) {
  const Model model("mixtral-skew");
  Ranks on(4, Ranks::first_device, {std::chrono::milliseconds(60000), GetParam().transport});
  on.group.run([&](Communicator& world) {
    LayersOfRank of(world, model, {StrategyKind::mc2}, 1, 2, 2);
    const AgreedStep step = of.layers[0]->agree({}, warm_tokens);
    of.pass(step);
    EXPECT_EQ(cost_of(world, [&] { of.pass(step); }).meetings, 2U * 4);
  });
}

// Expected: the bits of ranks that copy out of each other's memory.
TEST(KernelsThatWaitTest, NeedNoMeetingOfHosts) {
  if (!kernels_run_at_once()) GTEST_SKIP() << "one GPU need not run two kernels at once";
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Model model("mixtral-skew", dtype);
    TwoContexts on;
    Ranks pulled(2, Ranks::first_device);
    std::vector<std::vector<double>> expected(2), got(2);
    const auto values = [](Communicator& world, const LayersOfRank& of, std::vector<std::vector<double>>& to) {
      to[static_cast<std::size_t>(world.rank())] = of.out.values(world.stream());
    };
    pulled.group.run([&](Communicator& world) {
      LayersOfRank of(world, model, {StrategyKind::mc2}, 1, 4);
      of.pass(of.layers[0]->agree({}, warm_tokens));
      values(world, of, expected);
    });
    on.group->run([&](Communicator& world) {
      LayersOfRank of(world, model, {StrategyKind::mc2}, 1, 4);
      const AgreedStep step = of.layers[0]->agree({}, warm_tokens);
      of.pass(step);
      const HostCost none;
      EXPECT_EQ(cost_of(world, [&] { of.pass(step); }), none);
      values(world, of, got);
    });
    EXPECT_EQ(got, expected);
  }
}

}  // namespace
}  // namespace moecl::test
