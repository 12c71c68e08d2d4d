#include <moecl/residency_replay.hpp>

#include <algorithm>
#include <limits>

#include "runtime/check.hpp"

namespace moecl {
namespace {

/// @param use    Called with the experts of a pass, before slots are given away
/// @param worth  Worth of an expert in a pass: the one with the least worth gives its slot away
template <class Used, class Worth>
ReplayedResidency replay(const UsedExperts& passes, std::int32_t experts, std::int32_t slots, const Used& use,
                         const Worth& worth) {
  constexpr std::int32_t nobody = -1;
  require(experts >= 1 && slots >= 1, "residency replay: {} experts, {} slots", experts, slots);
  std::vector<std::int32_t> holders(static_cast<std::size_t>(slots), nobody);
  std::vector<bool> here(static_cast<std::size_t>(experts)), in_use(static_cast<std::size_t>(experts));
  ReplayedResidency counts;
  for (std::size_t pass = 0; pass < passes.size(); ++pass) {
    std::vector<std::int32_t> used = passes[pass];
    std::sort(used.begin(), used.end());
    require(std::ssize(used) <= slots, "residency replay: pass {} uses {} experts, there are {} slots", pass,
            used.size(), slots);
    for (const std::int32_t e : used)
      require(e >= 0 && e < experts, "residency replay: expert {} of {} in pass {}", e, experts, pass);
    use(pass, used);
    for (const std::int32_t e : used) in_use[static_cast<std::size_t>(e)] = true;
    for (const std::int32_t e : used) {
      if (here[static_cast<std::size_t>(e)]) {
        ++counts.hits;
        continue;
      }
      ++counts.misses;
      std::int32_t* leaves = nullptr;
      for (std::int32_t& holder : holders) {
        if (holder == nobody) {
          leaves = &holder;
          break;
        }
        if (in_use[static_cast<std::size_t>(holder)]) continue;
        if (leaves == nullptr || worth(holder, pass) < worth(*leaves, pass)) leaves = &holder;
      }
      if (*leaves != nobody) here[static_cast<std::size_t>(*leaves)] = false;
      *leaves = e;
      here[static_cast<std::size_t>(e)] = true;
    }
    for (const std::int32_t e : used) in_use[static_cast<std::size_t>(e)] = false;
  }
  return counts;
}

}  // namespace

ReplayedResidency replay_residency(const UsedExperts& passes, std::int32_t experts, std::int32_t slots,
                                   ResidencyPolicy policy, const std::vector<float>& loads) {
  constexpr float fading = 0.9F;
  require(policy != ResidencyPolicy::fixed || std::ssize(loads) == experts,
          "residency replay: loads of {} experts of {}", loads.size(), experts);
  std::vector<float> worth =
      policy == ResidencyPolicy::fixed ? loads : std::vector<float>(static_cast<std::size_t>(experts));
  const auto use = [&](std::size_t pass, const std::vector<std::int32_t>& used) {
    if (policy == ResidencyPolicy::fixed) return;
    if (policy == ResidencyPolicy::least_stale)
      for (float& each : worth) each *= fading;
    for (const std::int32_t e : used) {
      float& each = worth[static_cast<std::size_t>(e)];
      each = policy == ResidencyPolicy::lru ? static_cast<float>(pass + 1) : each + 1;
    }
  };
  return replay(passes, experts, slots, use,
                [&](std::int32_t expert, std::size_t) { return worth[static_cast<std::size_t>(expert)]; });
}

ReplayedResidency replay_residency_with_foresight(const UsedExperts& passes, std::int32_t experts, std::int32_t slots) {
  std::vector<std::vector<std::size_t>> uses(static_cast<std::size_t>(std::max(experts, 1)));
  for (std::size_t pass = 0; pass < passes.size(); ++pass)
    for (const std::int32_t e : passes[pass])
      if (e >= 0 && e < experts) uses[static_cast<std::size_t>(e)].push_back(pass);
  const auto worth = [&](std::int32_t expert, std::size_t pass) {
    const std::vector<std::size_t>& of = uses[static_cast<std::size_t>(expert)];
    const auto next = std::upper_bound(of.begin(), of.end(), pass);
    return next == of.end() ? std::numeric_limits<double>::lowest() : -static_cast<double>(*next);
  };
  return replay(
      passes, experts, slots, [](std::size_t, const std::vector<std::int32_t>&) {}, worth);
}

ResidencyPolicy choose_residency(const UsedExperts& passes, std::int32_t experts, std::int32_t slots,
                                 const std::vector<float>& loads) {
  ResidencyPolicy best = ResidencyPolicy::lru;
  std::int64_t most = -1;
  for (const ResidencyPolicy policy : {ResidencyPolicy::lru, ResidencyPolicy::least_stale, ResidencyPolicy::fixed}) {
    if (policy == ResidencyPolicy::fixed && loads.empty()) continue;
    const std::int64_t hits = replay_residency(passes, experts, slots, policy, loads).hits;
    if (hits > most) best = policy, most = hits;
  }
  return best;
}

}  // namespace moecl
