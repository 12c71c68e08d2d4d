#pragma once
#include <moecl/layer_options.hpp>

#include <cstdint>
#include <vector>

namespace moecl {

/// The experts that each pass used: one list per pass, in any order, without duplicates.
using UsedExperts = std::vector<std::vector<std::int32_t>>;

/// What a layer with the given number of slots would count.
struct ReplayedResidency {
  std::int64_t hits = 0, misses = 0;

  double hit_rate() const {
    return hits + misses == 0 ? 1 : static_cast<double>(hits) / static_cast<double>(hits + misses);
  }
};

/// Replays the passes with a policy as devices follow it, starting with empty slots.
/// @param loads  For ResidencyPolicy::fixed. Shape: [experts]
/// Errors: invalid_argument  a pass uses more experts than there are slots, or an expert that does not exist
ReplayedResidency replay_residency(const UsedExperts& passes, std::int32_t experts, std::int32_t slots,
                                   ResidencyPolicy policy, const std::vector<float>& loads = {});
/// The optimum of all policies that must hold a pass's experts in slots: the expert whose next use is furthest away
/// gives its slot to another one.
/// Source: Belady, A study of replacement algorithms for a virtual-storage computer, 1966
ReplayedResidency replay_residency_with_foresight(const UsedExperts& passes, std::int32_t experts, std::int32_t slots);
/// The policy with most hits; of equal ones the first of lru, least_stale, fixed. Without loads `fixed` is left out.
ResidencyPolicy choose_residency(const UsedExperts& passes, std::int32_t experts, std::int32_t slots,
                                 const std::vector<float>& loads = {});

}  // namespace moecl
