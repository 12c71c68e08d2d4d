#pragma once
#include <moecl/layer_options.hpp>

#include <cstdint>
#include <vector>

namespace moecl {

/// Which experts each of some passes used, ascending or not, none twice.
using UsedExperts = std::vector<std::vector<std::int32_t>>;

/// What a layer with so many slots would count.
struct ReplayedResidency {
  std::int64_t hits = 0, misses = 0;

  double hit_rate() const {
    return hits + misses == 0 ? 1 : static_cast<double>(hits) / static_cast<double>(hits + misses);
  }
};

/// The policy as devices follow it, from empty slots on.
/// @param loads  of ResidencyPolicy::fixed. Shape: [experts]
/// Errors: invalid_argument  a pass uses more experts than there are slots, or an expert that does not exist
ReplayedResidency replay_residency(const UsedExperts& passes, std::int32_t experts, std::int32_t slots,
                                   ResidencyPolicy policy, const std::vector<float>& loads = {});
/// What nobody can do better, who must have a pass's experts in slots: who is used again last gives its slot away.
/// Source: Belady, A study of replacement algorithms for a virtual-storage computer, 1966
ReplayedResidency replay_residency_with_foresight(const UsedExperts& passes, std::int32_t experts, std::int32_t slots);
/// The policy with most hits; of equal ones the first of lru, least_stale, fixed. Without loads not the last.
ResidencyPolicy choose_residency(const UsedExperts& passes, std::int32_t experts, std::int32_t slots,
                                 const std::vector<float>& loads = {});

}  // namespace moecl
