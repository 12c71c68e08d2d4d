// Layers with a part of their experts in device memory. Decoding, one token per pass, on traces with a given rate of
// experts that are in slots already: by one layer, or by two layers, each prefetched while the other computes. And
// prefill, which streams experts. The bar is half the rate of a layer that has all experts, at 25 % of them and 88 %
// hits.
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

constexpr std::int32_t traced_experts = 64;
constexpr std::size_t traced_passes = 64;  // of each trace

/// Expert ids of passes with K experts each: with probability `hits` one of the `slots` most recently used experts.
std::vector<double> local_trace(std::int32_t top_k, std::int32_t slots, double hits, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> chance(0, 1);
  std::vector<std::int32_t> by_age;  // least recently used first
  for (std::int32_t e = 0; e < traced_experts; ++e) by_age.push_back(e);
  std::vector<double> ids;
  for (std::size_t pass = 0; pass < traced_passes; ++pass) {
    std::vector<std::int32_t> used;
    for (std::int32_t k = 0; k < top_k; ++k) {
      const bool hit = chance(random) < hits;
      const auto from = static_cast<std::size_t>(hit ? traced_experts - slots : 0),
                 count = static_cast<std::size_t>(hit ? slots : traced_experts - slots);
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

/// Reports the hit rate of each policy on passes of K experts each, and the best possible rate (Belady).
void count_hits(benchmark::State& state, const std::vector<double>& ids, std::int32_t top_k, std::int32_t slots) {
  UsedExperts used;
  for (auto first = ids.begin(); first != ids.end(); first += top_k) used.emplace_back(first, first + top_k);
  for (const ResidencyPolicy policy : {ResidencyPolicy::lru, ResidencyPolicy::least_stale})
    state.counters[name(policy)] = replay_residency(used, traced_experts, slots, policy).hit_rate();
  state.counters["belady"] = replay_residency_with_foresight(used, traced_experts, slots).hit_rate();
}

/// The ids that a prefetch is told. With probability `right` an id is that of the trace, else it is any other expert.
std::vector<double> guesses_of(const std::vector<double>& trace, std::int32_t top_k, double right) {
  std::mt19937_64 random(11);
  std::uniform_real_distribution<double> chance(0, 1);
  std::vector<double> guesses = trace;
  for (std::size_t pass = 0; pass < traced_passes; ++pass) {
    const auto begin = guesses.begin() + static_cast<std::ptrdiff_t>(pass) * top_k, end = begin + top_k;
    for (auto guess = begin; guess != end; ++guess) {
      if (chance(random) < right) continue;
      double other = 0;
      do other = static_cast<double>(random() % traced_experts);
      while (std::find(begin, end, other) != end);
      *guess = other;
    }
  }
  return guesses;
}

const ModelCase& traced_model() {
  static const ModelCase of = ModelCase::named("qwen3-30b-a3b", traced_experts, Scheme::named("bf16"));
  return of;
}

struct Budget {
  double percent;  ///< share of the experts in device memory; 100: no budget
  MissedExperts missed = MissedExperts::automatic;

  MoeLayer layer() const {
    static const ModelWeights weights(traced_model(), true);
    MoeLayerOptions options;
    options.dtype = DType::bf16;
    options.one_launch = false;
    options.budget.percent = percent < 100 ? percent : 0;
    options.budget.policy = ResidencyPolicy::lru, options.budget.missed = missed;
    return {stream(), traced_model().shape, weights.weights, options};
  }
  /// The slots that a trace is made for. A layer without a budget gets the trace of one with half of the experts.
  std::int32_t slots() const { return static_cast<std::int32_t>(traced_experts * std::min(percent, 50.0) / 100); }
};

/// A layer whose tokens go to the experts of a trace.
struct TracedLayer {
  std::int32_t top_k = traced_model().shape.router.top_k;
  std::vector<double> trace;
  MoeLayer layer;
  Buffer workspace, of_prefetch;
  test::DeviceTensor ids, guesses, weights, x, out;

  TracedLayer(const Budget& budget, double hits, double right = 1, std::uint64_t seed = 7)
      : trace(local_trace(top_k, budget.slots(), hits, seed)),
        layer(budget.layer()),
        workspace(*stream().context, layer.workspace_bytes(1)),
        of_prefetch(*stream().context, layer.workspace_bytes(1)),
        ids(stream(), DType::i32, {traced_passes, top_k}, trace),
        guesses(stream(), DType::i32, {traced_passes, top_k}, guesses_of(trace, top_k, right)),
        weights(stream(), DType::f32, {1, top_k}, std::vector<double>(static_cast<std::size_t>(top_k), 1.0 / top_k)),
        x(stream(), DType::bf16, {1, traced_model().shape.hidden}),
        out(stream(), DType::f32, {1, traced_model().shape.hidden}) {}

  void forward(std::size_t pass) const {
    MoeLayer::Forward args;
    args.x = x, args.out = out, args.weights = weights, args.workspace = workspace.view();
    args.ids = ids.view.rows(static_cast<std::int64_t>(pass), 1);
    layer.forward(stream(), args);
  }
  void prefetch(StreamView beside, std::size_t pass) const {
    MoeInputs tokens;
    tokens.weights = weights;
    tokens.ids = guesses.view.rows(static_cast<std::int64_t>(pass % traced_passes), 1);
    layer.prefetch(beside, tokens, of_prefetch.view());
  }
};

/// Reports the time of a pass, and the bytes that are fetched for one.
template <class All>
void time_passes(benchmark::State& state, const std::vector<const MoeLayer*>& layers, std::size_t count,
                 const All& all) {
  const auto counted = [&] {
    ResidencyCounts sum;
    for (const MoeLayer* layer : layers) {
      const ResidencyCounts of = layer->residency(stream());
      sum.hits += of.hits, sum.misses += of.misses, sum.fetched_bytes += of.fetched_bytes;
      sum.prefetched += of.prefetched, sum.prefetched_hits += of.prefetched_hits;
    }
    return sum;
  };
  all();
  const ResidencyCounts before = counted();
  stream().finish();
  double seconds = 0;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    all();
    stream().finish();
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    state.SetIterationTime(took / static_cast<double>(count));
    seconds += took;
  }
  const ResidencyCounts after = counted();
  const auto looked = static_cast<double>(after.hits + after.misses - before.hits - before.misses),
             bytes = static_cast<double>(after.fetched_bytes - before.fetched_bytes);
  if (looked == 0) return;
  state.counters["hits"] = static_cast<double>(after.hits - before.hits) / looked;
  state.counters["fetched_bytes_a_pass"] =
      bytes / (static_cast<double>(state.iterations()) * static_cast<double>(count));
  state.counters["fetched_gb_per_s"] = bytes / seconds / 1e9;
  if (after.prefetched == 0) return;
  state.counters["prefetched_hits"] = static_cast<double>(after.prefetched_hits - before.prefetched_hits) / looked;
}

void decode_with_budget(benchmark::State& state, const Budget& budget, double hits) {
  const TracedLayer of(budget, hits);
  time_passes(state, {&of.layer}, traced_passes, [&] {
    for (std::size_t pass = 0; pass < traced_passes; ++pass) of.forward(pass);
  });
  if (budget.percent < 100) count_hits(state, of.trace, of.top_k, budget.slots());
}

/// @param right  probability that a prefetch names an expert that is used; negative: no prefetch
void decode_by_two(benchmark::State& state, const Budget& budget, double hits, double right) {
  const TracedLayer first(budget, hits, right), second(budget, hits, right, 8);
  const Stream beside = Stream::beside(stream(), false);
  time_passes(state, {&first.layer, &second.layer}, 2 * traced_passes, [&] {
    for (std::size_t pass = 0; pass < traced_passes; ++pass) {
      if (right >= 0) second.prefetch(beside, pass);
      first.forward(pass);
      if (right >= 0) first.prefetch(beside, pass + 1);
      second.forward(pass);
    }
    beside.finish();
  });
}

/// The router chooses the experts, not a trace.
void prefill_with_budget(benchmark::State& state, const Budget& budget, std::int64_t tokens) {
  const MoeLayer layer = budget.layer();
  const std::int64_t hidden = traced_model().shape.hidden;
  const test::DeviceTensor x(stream(), DType::bf16, {tokens, hidden},
                             test::normal(static_cast<std::size_t>(tokens * hidden), 3)),
      out(stream(), DType::f32, {tokens, hidden});
  const Buffer workspace(*stream().context, layer.workspace_bytes(tokens));
  MoeLayer::Forward args;
  args.x = x, args.out = out, args.workspace = workspace.view();
  time_passes(state, {&layer}, 1, [&] { layer.forward(stream(), args); });
}

template <class Run>
void add_residency(const std::string& name, const Run& run) {
  benchmark::RegisterBenchmark(name.c_str(), run)->UseManualTime()->Unit(benchmark::kMicrosecond);
}

const bool residency_added = [] {
  const auto each_budget = [](const std::string& before, const std::string& after, const auto& run) {
    add_residency(before + "all" + after, [=](benchmark::State& state) { run(state, Budget{100}); });
    for (const double percent : {12.5, 25.0, 50.0})
      for (const MissedExperts missed : {MissedExperts::fetched, MissedExperts::in_place})
        add_residency(fmt::format("{}{}%/{}{}", before, percent, name(missed), after), [=](benchmark::State& state) {
          run(state, Budget{percent, missed});
        });
  };
  for (const double hits : {0.67, 0.81, 0.88, 0.95}) {
    each_budget("residency/", fmt::format("/hits:{}", hits),
                [=](benchmark::State& state, const Budget& budget) { decode_with_budget(state, budget, hits); });
    const Budget quarter{25, MissedExperts::fetched};
    for (const double right : {-1.0, 0.8, 1.0})
      add_residency(
          fmt::format("residency/two/25%/hits:{}/foreseen:{}", hits, right < 0 ? "none" : fmt::format("{}", right)),
          [=](benchmark::State& state) { decode_by_two(state, quarter, hits, right); });
  }
  for (const std::int64_t tokens : {64, 512})
    each_budget("residency/prefill/", fmt::format("/T:{}", tokens),
                [=](benchmark::State& state, const Budget& budget) { prefill_with_budget(state, budget, tokens); });
  return true;
}();

}  // namespace
}  // namespace moecl::bench
