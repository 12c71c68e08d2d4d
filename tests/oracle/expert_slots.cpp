#include "tests/oracle/expert_slots.hpp"

#include <bit>

namespace moecl::test::oracle {

std::vector<std::pair<std::int32_t, std::int32_t>> ExpertSlots::claim(const std::vector<bool>& used, std::int32_t first,
                                                                      std::int32_t count, SlotPolicy policy,
                                                                      float fading, bool new_pass) {
  passes += new_pass;
  for (std::int32_t e = first; e < first + count; ++e) {
    std::int32_t& priority = priorities[static_cast<std::size_t>(e)];
    const bool is_used = used[static_cast<std::size_t>(e)];
    if (policy == SlotPolicy::lru && is_used) priority = static_cast<std::int32_t>(passes);
    if (policy == SlotPolicy::least_stale)
      priority = std::bit_cast<std::int32_t>(std::bit_cast<float>(priority) * fading + (is_used ? 1.0F : 0.0F));
  }
  std::vector<std::pair<std::int32_t, std::int32_t>> fetches;
  for (std::int32_t e = first; e < first + count; ++e) {
    if (!used[static_cast<std::size_t>(e)]) continue;
    if (slots[static_cast<std::size_t>(e)] >= 0) {
      ++hits;
      continue;
    }
    ++misses;
    std::size_t best = holders.size();
    std::int64_t least = 0;
    for (std::size_t s = 0; s < holders.size(); ++s) {
      const std::int32_t holder = holders[s];
      const bool here = holder >= first && holder < first + count && used[static_cast<std::size_t>(holder)];
      const std::int64_t key = holder < 0 ? -1 : priorities[static_cast<std::size_t>(holder)];
      if (!here && (best == holders.size() || key < least)) best = s, least = key;
    }
    if (best == holders.size()) continue;  // more of them than slots
    if (holders[best] >= 0) slots[static_cast<std::size_t>(holders[best])] = -1;
    holders[best] = e, slots[static_cast<std::size_t>(e)] = static_cast<std::int32_t>(best);
    fetches.emplace_back(e, static_cast<std::int32_t>(best));
  }
  return fetches;
}

}  // namespace moecl::test::oracle
