// Hits of policies on traces, against the device's own counts; Belady's policy, against a search of all choices.
#include <moecl/residency_replay.hpp>

#include <gmock/gmock.h>

#include <functional>
#include <map>
#include <random>

#include "tests/host/ranked_model.hpp"

namespace moecl::test {
namespace {

/// Passes of K experts each. The chance that an expert comes again falls with its age.
UsedExperts local_trace(std::int32_t experts, std::int32_t top_k, std::size_t passes, double again,
                        std::uint64_t seed) {
  std::mt19937_64 random(seed);
  UsedExperts trace;
  while (trace.size() < passes) {
    std::vector<std::int32_t> used;
    while (std::ssize(used) < top_k) {
      const bool old = !trace.empty() && static_cast<double>(random() % 1000) < 1000 * again;
      const auto& from =
          trace.empty() ? used : trace[trace.size() - 1 - random() % std::min<std::size_t>(trace.size(), 4)];
      const std::int32_t e = old ? from[random() % from.size()]
                                 : static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(experts));
      if (std::find(used.begin(), used.end(), e) == used.end()) used.push_back(e);
    }
    trace.push_back(used);
  }
  return trace;
}

/// The fewest possible misses, by trying every choice of the experts to evict.
std::int64_t fewest_misses(const UsedExperts& passes, std::int32_t slots) {
  using Held = std::vector<std::int32_t>;
  std::map<Held, std::int64_t> reached = {{{}, 0}};
  for (const auto& used : passes) {
    std::map<Held, std::int64_t> next;
    for (const auto& [held, misses] : reached) {
      Held all = held;
      std::int64_t missing = 0;
      for (const std::int32_t e : used)
        if (std::find(held.begin(), held.end(), e) == held.end()) all.push_back(e), ++missing;
      std::sort(all.begin(), all.end());
      const std::int64_t so_far = misses + missing;
      const std::function<void(Held)> leave = [&](const Held& of) {
        if (std::ssize(of) <= slots) {
          const auto found = next.emplace(of, so_far).first;
          found->second = std::min(found->second, so_far);
          return;
        }
        for (std::size_t i = 0; i < of.size(); ++i) {
          if (std::find(used.begin(), used.end(), of[i]) != used.end()) continue;
          Held fewer = of;
          fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
          leave(fewer);
        }
      };
      leave(all);
    }
    reached = std::move(next);
  }
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const auto& [held, misses] : reached) least = std::min(least, misses);
  return least;
}

TEST(ResidencyReplayTest, ForesightHasTheFewestMisses) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const UsedExperts trace = local_trace(6, 2, 14, 0.5, seed);
    EXPECT_EQ(replay_residency_with_foresight(trace, 6, 3).misses, fewest_misses(trace, 3)) << seed;
    for (const ResidencyPolicy policy : {ResidencyPolicy::lru, ResidencyPolicy::least_stale})
      EXPECT_GE(replay_residency(trace, 6, 3, policy).misses, fewest_misses(trace, 3));
  }
}

TEST(ResidencyReplayTest, CountsAreTheDevices) {
  // The tokens of the golden, one by one.
  for (const ResidencyPolicy policy : {ResidencyPolicy::lru, ResidencyPolicy::least_stale, ResidencyPolicy::fixed}) {
    Model model("qwen3-moe-e64k8");
    model.options.budget.percent = 30;
    model.options.budget.policy = policy;
    for (int e = 0; policy == ResidencyPolicy::fixed && e < 64; ++e)
      model.options.budget.loads.push_back(static_cast<float>(e * 11 % 17));
    const StreamView stream = devices().front()->stream;
    const MoeLayer layer(stream, model.config.shape, model.weights(0, 64), model.options);
    const Buffer workspace(*stream.context, layer.workspace_bytes(1));
    UsedExperts trace;
    for (std::int64_t token = 0; token < model.tokens(); ++token) {
      const Outputs told = forward<MoeLayer::Forward>(stream, model, token, 1, [&](MoeLayer::Forward& args) {
        args.workspace = workspace.view();
        layer.forward(stream, args);
      });
      trace.emplace_back(told.ids.begin(), told.ids.end());
    }
    const ReplayedResidency replayed = replay_residency(trace, 64, 20, policy, model.options.budget.loads);
    EXPECT_EQ(layer.residency(stream).hits, replayed.hits) << name(policy);
    EXPECT_EQ(layer.residency(stream).misses, replayed.misses);
  }
}

TEST(ResidencyReplayTest, ChoosesTheOneWithMostHits) {
  // Two experts come always, others once: least_stale keeps those two, and so do the loads of the trace.
  UsedExperts trace;
  for (std::int32_t i = 0; i < 60; ++i)
    trace.push_back(i % 3 == 0 ? std::vector<std::int32_t>{0, 1} : std::vector<std::int32_t>{2 + i % 30, 32 + i % 30});
  EXPECT_EQ(choose_residency(trace, 62, 4), ResidencyPolicy::least_stale);
  EXPECT_GT(replay_residency(trace, 62, 4, ResidencyPolicy::least_stale).hits,
            replay_residency(trace, 62, 4, ResidencyPolicy::lru).hits);
  EXPECT_THAT([&] { replay_residency(trace, 62, 1, ResidencyPolicy::lru); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("uses 2 experts, there are 1 slots")));
  EXPECT_THAT([&] { replay_residency({{62}}, 62, 1, ResidencyPolicy::lru); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("expert 62 of 62")));
}

}  // namespace
}  // namespace moecl::test
