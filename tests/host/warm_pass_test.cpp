// What a forward pass costs the host once its form is known.
#include <gmock/gmock.h>

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

}  // namespace
}  // namespace moecl::test
