// The cost of a warm forward pass on the host thread. The bars, on the CPU of an H200's machine: 8 us for a layer in
// one launch, 18 us for one in several launches, and 25 us beside the driver's launches for a pass over ranks.
#include <moecl/moe_layer.hpp>
#include <moecl/parallel_layer.hpp>

#include <fmt/format.h>

#include <memory>

#include "bench/host_time.hpp"
#include "bench/model_case.hpp"
#include "bench/rank_time.hpp"
#include "tests/cases/device_memory.hpp"
#include "tests/cases/waiting_peer_memory.hpp"

namespace moecl::bench {
namespace {

void forward(benchmark::State& state, const char* scheme, bool one_launch) {
  const StreamView on = stream();
  const std::int64_t tokens = state.range(0);
  const ModelCase model = ModelCase::named("qwen3-30b-a3b", 16, Scheme::named(scheme));
  const ModelWeights weights(model, true);
  MoeLayerOptions options;
  options.dtype = DType::bf16;
  options.one_launch = one_launch;
  const MoeLayer layer(on, model.shape, weights.weights, options);
  const Buffer workspace(*on.context, layer.workspace_bytes(tokens));
  const test::DeviceTensor x(on, DType::bf16, {tokens, model.shape.hidden}),
      out(on, DType::f32, {tokens, model.shape.hidden});
  MoeLayer::Forward args;
  args.x = x;
  args.out = out;
  args.workspace = workspace.view();
  measure_enqueue(state, [&] { layer.forward(on, args); });
  const std::uint64_t before = on.context->counters().kernels_launched;
  layer.forward(on, args);
  state.counters["launches"] = static_cast<double>(on.context->counters().kernels_launched - before);
}

void add(const char* scheme, bool one_launch, const char* title) {
  benchmark::RegisterBenchmark(title, [=](benchmark::State& state) { forward(state, scheme, one_launch); })
      ->ArgName("T")
      ->Arg(1)
      ->Arg(64)
      ->UseManualTime()
      ->Iterations(50);
}

/// A pass of one of several ranks, in a step that the ranks have agreed on beforehand.
void forward_over_ranks(benchmark::State& state, StrategyKind kind, const std::shared_ptr<PeerMemory>& peer_memory) {
  const std::int64_t tokens = state.range(1);
  const ModelCase model = ModelCase::named("qwen3-30b-a3b", 16, Scheme::named("bf16"));
  const ModelWeights weights(model, true);
  MoeLayerOptions options;
  options.dtype = DType::bf16;
  struct Rank {
    ParallelLayer layer;
    AgreedStep step;
    test::DeviceTensor x, out;
  };
  const auto make = [&](Communicator& world) -> RankStep {
    const ExpertRank place(world, 1, model.shape.experts);
    MoeWeights own = weights.weights;
    const auto first = own.experts.begin() + place.first_expert;
    own.experts = {first, first + place.local_experts};
    ParallelLayer layer(place, {kind}, model.shape, own, options);
    const AgreedStep step = layer.agree({kind}, tokens);
    const auto rank = std::make_shared<Rank>(Rank{std::move(layer),
                                                  step,
                                                  {world.stream(), DType::bf16, {tokens, model.shape.hidden}},
                                                  {world.stream(), DType::f32, {tokens, model.shape.hidden}}});
    return [rank] {
      ParallelLayer::Forward args;
      args.x = rank->x;
      args.out = rank->out;
      rank->layer.forward(args, rank->step);
    };
  };
  measure_enqueue_of_ranks(state, state.range(0), make, peer_memory);
}

void add_over_ranks(const std::string& title, StrategyKind kind, const std::shared_ptr<PeerMemory>& peer_memory) {
  benchmark::RegisterBenchmark(title.c_str(),
                               [=](benchmark::State& state) { forward_over_ranks(state, kind, peer_memory); })
      ->ArgNames({"ranks", "T"})
      ->Args({2, 1})
      ->Args({2, 64})
      ->UseManualTime()
      ->Iterations(50);
}

const bool registered = [] {
  add("bf16", true, "host_time/bf16");
  add("bf16", false, "host_time/bf16/several_launches");
  add("fp8_w8a8_block", true, "host_time/fp8_w8a8_block");
  for (const StrategyKind kind :
       {StrategyKind::mc2, StrategyKind::all_gather, StrategyKind::all2all_v, StrategyKind::multicast})
    add_over_ranks(fmt::format("host_time/ranks/{}", name(kind)), kind, nullptr);
  add_over_ranks("host_time/ranks/mc2/put_windows", StrategyKind::mc2, std::make_shared<test::WaitingPeerMemory>());
  return true;
}();

}  // namespace
}  // namespace moecl::bench
