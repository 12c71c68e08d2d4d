// A layer whose experts and tokens are spread over GPUs, compared with the same layer and the same tokens on one of
// these GPUs. Weights are those of the benchmarks by model.
#include <moecl/moe_layer.hpp>
#include <moecl/parallel_layer.hpp>

#include <fmt/format.h>

#include <memory>

#include "bench/model_case.hpp"
#include "bench/rank_time.hpp"
#include "tests/cases/device_memory.hpp"

namespace moecl::bench {
namespace {

struct Tokens {
  test::DeviceTensor x, out;

  /// Each rank gets different tokens.
  Tokens(StreamView on, const ModelCase& model, std::int64_t count, std::int32_t rank)
      : x(on, DType::bf16, {count, model.shape.hidden}), out(on, DType::f32, {count, model.shape.hidden}) {
    const std::int64_t shift = 1009 * rank;
    const std::vector<std::byte> values = repeated_values(DType::bf16, count * model.shape.hidden + shift, 1);
    write_blocking(on, x.view.buffer, values.data() + 2 * shift, x.view.size_bytes());
  }
};

RankStep on_one(Communicator& world, const ModelCase& model, const ModelWeights& weights,
                const MoeLayerOptions& options, std::int64_t tokens) {
  struct Rank {
    MoeLayer layer;
    Buffer workspace;
    Tokens tokens;
  };
  const StreamView stream = world.stream();
  MoeLayer layer(stream, model.shape, weights.weights, options);
  Buffer workspace(*stream.context, layer.workspace_bytes(tokens));
  const auto rank = std::make_shared<Rank>(Rank{std::move(layer), std::move(workspace), {stream, model, tokens, 0}});
  return [rank, stream] {
    MoeLayer::Forward args;
    args.x = rank->tokens.x;
    args.out = rank->tokens.out;
    args.workspace = rank->workspace.view();
    rank->layer.forward(stream, args);
  };
}

RankStep on_rank(const Communicator& world, const ParallelPlan& plan, const ModelCase& model,
                 const ModelWeights& weights, const MoeLayerOptions& options, std::int64_t tokens) {
  struct Rank {
    ParallelLayer layer;
    Tokens tokens;
  };
  const ExpertRank place(world, 1, model.shape.experts);
  MoeWeights own = weights.weights;
  const auto first = own.experts.begin() + place.first_expert;
  own.experts = {first, first + place.local_experts};
  const auto rank = std::make_shared<Rank>(
      Rank{{place, plan, model.shape, own, options}, {world.stream(), model, tokens / world.size(), world.rank()}});
  return [rank] {
    ParallelLayer::Forward args;
    args.x = rank->tokens.x;
    args.out = rank->tokens.out;
    rank->layer.forward(args);
  };
}

void layer_over_ranks(benchmark::State& state, const char* shape, std::int32_t experts, const ParallelPlan& plan) {
  const std::int64_t ranks = state.range(0), tokens = state.range(1);
  if (static_cast<std::int64_t>(gpus().size()) < ranks) return state.SkipWithError("needs a GPU a rank");
  const ModelCase model = ModelCase::named(shape, experts, Scheme::named("bf16"));
  const ModelWeights weights(model, true);
  MoeLayerOptions options;
  options.dtype = DType::bf16;
  measure_ranks(state, ranks, [&](Communicator& world) {
    return ranks == 1 ? on_one(world, model, weights, options, tokens)
                      : on_rank(world, plan, model, weights, options, tokens);
  });
}

void add(const char* shape, std::int32_t experts) {
  for (const StrategyKind kind : {StrategyKind::mc2, StrategyKind::all_gather})
    for (const bool halves : {false, true}) {
      ParallelPlan plan{kind};
      if (halves) plan.dbo_prefill_token_threshold = 0;
      const std::string title = fmt::format("ep_layer/{}/bf16/{}{}", shape, name(kind), halves ? "/2_batches" : "");
      auto* const of = benchmark::RegisterBenchmark(
          title.c_str(), [=](benchmark::State& state) { layer_over_ranks(state, shape, experts, plan); });
      of->ArgNames({"ranks", "T"})->UseManualTime();
      if (kind == StrategyKind::mc2 && !halves) of->Args({1, 16384});
      for (const std::int64_t ranks : {2, 4}) of->Args({ranks, 16384});
    }
}

const bool added = (add("qwen3-30b-a3b", 128), add("deepseek-v3", 256), true);

}  // namespace
}  // namespace moecl::bench
