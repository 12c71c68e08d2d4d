// Decoding a token at a time by a layer of which a part of the experts is in device memory, on traces of which so many
// experts of a pass were in slots. The bar is half of the rate of a layer that has them all, with 25 % and 88 % hits.
#include <moecl/moe_layer.hpp>
#include <moecl/residency_replay.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "bench/device_time.hpp"
#include "bench/model_case.hpp"
#include "tests/cases/device_memory.hpp"

namespace moecl::bench {
namespace {

/// Ids of passes of K experts each, of which `hits` were among the last `slots` that were used.
std::vector<double> local_trace(std::int32_t experts, std::int32_t top_k, std::int32_t slots, double hits,
                                std::size_t passes) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> chance(0, 1);
  std::vector<std::int32_t> by_age;  // the one used last is the last
  for (std::int32_t e = 0; e < experts; ++e) by_age.push_back(e);
  std::vector<double> ids;
  for (std::size_t pass = 0; pass < passes; ++pass) {
    std::vector<std::int32_t> used;
    for (std::int32_t k = 0; k < top_k; ++k) {
      const bool hit = chance(random) < hits;
      const auto from = static_cast<std::size_t>(hit ? experts - slots : 0),
                 count = static_cast<std::size_t>(hit ? slots : experts - slots);
      std::int32_t e = 0;
      do e = by_age[from + random() % count];
      while (std::find(used.begin(), used.end(), e) != used.end());
      used.push_back(e);
    }
    for (const std::int32_t e : used) {
      by_age.erase(std::find(by_age.begin(), by_age.end(), e));
      by_age.push_back(e);
      ids.push_back(e);
    }
  }
  return ids;
}

/// What each policy hits on passes of K experts each, and what nobody can do better.
void count_hits(benchmark::State& state, const std::vector<double>& ids, std::int32_t top_k, std::int32_t slots) {
  UsedExperts passes;
  for (auto first = ids.begin(); first != ids.end(); first += top_k) passes.emplace_back(first, first + top_k);
  for (const ResidencyPolicy policy : {ResidencyPolicy::lru, ResidencyPolicy::least_stale})
    state.counters[name(policy)] = replay_residency(passes, 64, slots, policy).hit_rate();
  state.counters["belady"] = replay_residency_with_foresight(passes, 64, slots).hit_rate();
}

/// @param percent  of the experts in device memory
void decode_with_budget(benchmark::State& state, double percent, double hits, MissedExperts missed) {
  constexpr std::size_t passes = 64;
  const StreamView on = stream();
  const ModelCase model = ModelCase::named("qwen3-30b-a3b", 64, Scheme::named("bf16"));
  const ModelWeights weights(model, true);
  const std::int32_t top_k = model.shape.router.top_k;
  MoeLayerOptions options;
  options.dtype = DType::bf16;
  options.one_launch = false;
  options.budget.percent = percent < 100 ? percent : 0;
  options.budget.policy = ResidencyPolicy::lru, options.budget.missed = missed;
  const MoeLayer layer(on, model.shape, weights.weights, options);
  const Buffer workspace(*on.context, layer.workspace_bytes(1));
  const auto slots = static_cast<std::int32_t>(64 * std::min(percent, 50.0) / 100);
  const std::vector<double> trace = local_trace(64, top_k, slots, hits, passes);
  const test::DeviceTensor x(on, DType::bf16, {1, model.shape.hidden}), out(on, DType::f32, {1, model.shape.hidden}),
      ids(on, DType::i32, {passes, top_k}, trace),
      of_ids(on, DType::f32, {1, top_k}, std::vector<double>(static_cast<std::size_t>(top_k), 1.0 / top_k));
  MoeLayer::Forward args;
  args.x = x, args.out = out, args.weights = of_ids;
  args.workspace = workspace.view();
  const auto all = [&] {
    for (std::size_t pass = 0; pass < passes; ++pass) {
      args.ids = ids.view.rows(static_cast<std::int64_t>(pass), 1);
      layer.forward(on, args);
    }
  };
  all();
  const ResidencyCounts before = layer.residency(on);
  on.finish();
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    all();
    on.finish();
    state.SetIterationTime(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / passes);
  }
  const ResidencyCounts after = layer.residency(on);
  const auto looked = static_cast<double>(after.hits + after.misses - before.hits - before.misses);
  if (looked > 0) state.counters["hits"] = static_cast<double>(after.hits - before.hits) / looked;
  if (looked > 0) count_hits(state, trace, top_k, slots);
  if (looked > 0)
    state.counters["fetched_bytes_a_pass"] = static_cast<double>(after.fetched_bytes - before.fetched_bytes) /
                                             (static_cast<double>(state.iterations()) * passes);
}

const bool residency_added = [] {
  const auto add = [](const std::string& name, double percent, double hits,
                      MissedExperts missed = MissedExperts::automatic) {
    benchmark::RegisterBenchmark(name.c_str(),
                                 [=](benchmark::State& state) { decode_with_budget(state, percent, hits, missed); })
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  };
  for (const double hits : {0.67, 0.81, 0.88, 0.95}) {
    add(fmt::format("residency/all/hits:{}", hits), 100, hits);
    for (const double percent : {12.5, 25.0, 50.0})
      for (const MissedExperts missed : {MissedExperts::fetched, MissedExperts::in_place})
        add(fmt::format("residency/{}%/{}/hits:{}", percent, name(missed), hits), percent, hits, missed);
  }
  return true;
}();

}  // namespace
}  // namespace moecl::bench
