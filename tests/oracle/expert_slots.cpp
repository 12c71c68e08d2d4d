#include "tests/oracle/expert_slots.hpp"

#include <bit>

namespace moecl::test::oracle {

std::vector<std::pair<std::int32_t, std::int32_t>> ExpertSlots::claim(const std::vector<bool>& used, std::int32_t first,
                                                                      std::int32_t count, SlotPolicy policy,
                                                                      float fading, bool new_pass) {
  return claim_part(used, first, count, policy, fading, new_pass, 0, static_cast<std::int32_t>(holders.size()), false);
}

std::vector<std::pair<std::int32_t, std::int32_t>> ExpertSlots::claim_part(const std::vector<bool>& used,
                                                                           std::int32_t first, std::int32_t count,
                                                                           SlotPolicy policy, float fading,
                                                                           bool new_pass, std::int32_t first_slot,
                                                                           std::int32_t slot_count, bool foreseen) {
  passes += new_pass && !foreseen;
  for (std::int32_t e = first; e < first + count && !foreseen; ++e) {
    std::int32_t& priority = priorities[static_cast<std::size_t>(e)];
    const bool is_used = used[static_cast<std::size_t>(e)];
    if (policy == SlotPolicy::lru && is_used) priority = static_cast<std::int32_t>(passes);
    if (policy == SlotPolicy::least_stale)
      priority = std::bit_cast<std::int32_t>(std::bit_cast<float>(priority) * fading + (is_used ? 1.0F : 0.0F));
  }
  std::vector<std::pair<std::int32_t, std::int32_t>> fetches;
  for (std::int32_t e = first; e < first + count; ++e) {
    if (!used[static_cast<std::size_t>(e)]) continue;
    std::int32_t& slot = slots[static_cast<std::size_t>(e)];
    if (slot >= first_slot && slot < first_slot + slot_count) {
      if (foreseen) continue;
      ++hits;
      prefetched_hits += awaited[static_cast<std::size_t>(slot)];
      awaited[static_cast<std::size_t>(slot)] = false;
      continue;
    }
    misses += !foreseen;
    std::size_t best = holders.size();
    std::int64_t least = 0;
    for (auto s = static_cast<std::size_t>(first_slot); s < static_cast<std::size_t>(first_slot + slot_count); ++s) {
      const std::int32_t holder = holders[s];
      const bool here = holder >= first && holder < first + count && used[static_cast<std::size_t>(holder)];
      const std::int64_t key = holder < 0 ? -1 : priorities[static_cast<std::size_t>(holder)];
      if (!here && (best == holders.size() || key < least)) best = s, least = key;
    }
    if (best == holders.size()) continue;  // more used experts than slots
    if (holders[best] >= 0) slots[static_cast<std::size_t>(holders[best])] = -1;
    if (slot >= 0) holders[static_cast<std::size_t>(slot)] = -1;
    holders[best] = e, slot = static_cast<std::int32_t>(best);
    awaited[best] = foreseen, prefetched += foreseen;
    fetches.emplace_back(e, static_cast<std::int32_t>(best));
  }
  return fetches;
}

}  // namespace moecl::test::oracle
