// The time of a pass of four ranks while experts move between them, compared with a pass while the experts stay.
#include <moecl/expert_migration.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "bench/device_time.hpp"
#include "bench/model_case.hpp"
#include "tests/cases/device_memory.hpp"

namespace moecl::bench {
namespace {

double median_of(std::vector<double> of) {
  std::nth_element(of.begin(), of.begin() + std::ssize(of) / 2, of.end());
  return of[of.size() / 2];
}

/// Moves every expert to the next rank: one per rank and step, a step per `passes_a_step` passes. Then back, and so on.
void passes_during_a_migration(benchmark::State& state) try {
  constexpr std::int32_t ranks = 4, experts = 64;
  const std::int64_t passes_a_step = state.range(0), tokens = state.range(1);
  const StreamView on = stream();
  const ModelCase model = ModelCase::named("qwen3-30b-a3b", experts, Scheme::named("bf16"));
  const ModelWeights weights(model, true);
  std::vector<Stream> streams;
  for (std::int32_t r = 0; r < ranks; ++r) streams.emplace_back(*on.context, 0, false);
  RankGroup group(std::vector<StreamView>(streams.begin(), streams.end()));
  const PlacementPlan start = place_experts({experts, ranks});
  std::vector<std::int32_t> turned = start.logical_of;
  std::rotate(turned.begin(), turned.begin() + experts / ranks, turned.end());
  const PlacementPlan targets[] = {place_as_given(turned, experts), start};
  MoeLayerOptions options;
  options.dtype = DType::bf16;
  std::vector<double> usual, moving;
  std::uint64_t syncs = 0;
  std::int64_t steps = 0;
  group.run([&](Communicator& world) {
    const ExpertRank place(world, 1, experts);
    MoeWeights own = weights.weights;
    const auto first = own.experts.begin() + place.first_expert;
    own.experts = {first, first + place.local_experts};
    ParallelLayer layer(place, {StrategyKind::mc2, start}, model.shape, own, options);
    const StreamView stream = world.stream();
    const std::int64_t mine = tokens / ranks;
    const test::DeviceTensor x(stream, DType::bf16, {mine, model.shape.hidden}),
        out(stream, DType::f32, {mine, model.shape.hidden});
    const std::int64_t shift = 1009 * world.rank();
    const std::vector<std::byte> values = repeated_values(DType::bf16, mine * model.shape.hidden + shift, 1);
    write_blocking(stream, x.view.buffer, values.data() + 2 * shift, x.view.size_bytes());
    ParallelLayer::Forward args;
    args.x = x, args.out = out;
    const auto pass = [&](std::vector<double>& times, const std::function<void()>& before) {
      world.share("start", {});
      const std::uint64_t syncs_before = stream.context->counters().host_syncs;
      const auto begin = std::chrono::steady_clock::now();
      before();
      layer.forward(args);
      world.share("enqueued", {});  // the counter is that of all ranks
      if (world.rank() == 0 && &times == &moving) syncs += stream.context->counters().host_syncs - syncs_before;
      world.share("counted", {});
      stream.finish();
      world.share("end", {});
      if (world.rank() == 0)
        times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    };
    for (int i = 0; i < 8; ++i) pass(usual, [] {});
    usual.clear();
    for (const PlacementPlan& target : targets) {
      for (int i = 0; i < 48; ++i) pass(usual, [] {});
      ExpertMigration moves(layer, target, {1});
      bool left = true;
      for (std::int64_t i = 0; left; ++i)
        pass(moving, [&] {
          if (i % passes_a_step != 0) return;
          left = moves.step();
          if (world.rank() == 0) ++steps;
        });
      moves.commit();
      stream.finish();
    }
  });
  for (auto _ : state) state.SetIterationTime(median_of(moving));
  state.counters["usual_us"] = median_of(usual) * 1e6;
  state.counters["of_usual"] = median_of(moving) / median_of(usual);
  state.counters["passes"] = static_cast<double>(moving.size());
  state.counters["steps"] = static_cast<double>(steps);
  state.counters["host_syncs"] = static_cast<double>(syncs);
} catch (const std::exception& error) {
  state.SkipWithError(error.what());
}
BENCHMARK(passes_during_a_migration)
    ->Name("migration/qwen3-30b-a3b-e64/bf16/ranks:4")
    ->ArgNames({"passes_a_step", "T"})
    ->Args({1, 64})
    ->Args({4, 64})
    ->Args({8, 64})
    ->Args({16, 64})
    ->Iterations(1)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace moecl::bench
