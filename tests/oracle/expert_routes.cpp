#include "tests/oracle/expert_routes.hpp"

#include <algorithm>
#include <set>

namespace moecl::test::oracle {

Routes expert_routes(const RoutedTokens& of) {
  Routes routes;
  const bool by_pair =
      static_cast<std::int64_t>(of.mask.size()) == of.tokens * of.top_k && !of.mask.empty() && of.top_k != 1;
  const auto first_inactive = std::count(of.mask.begin(), of.mask.end(), true);
  for (std::int64_t t = 0; t < of.tokens; ++t) {
    const bool token_active = of.mask.empty() || by_pair || t < first_inactive;
    if (!of.mask.empty() && !by_pair && of.mask[static_cast<std::size_t>(t)] != token_active) routes.faulty = true;
    std::set<std::int32_t> seen;
    bool some = false;
    for (std::int64_t k = 0; k < of.top_k; ++k) {
      const auto pair = static_cast<std::size_t>(t * of.top_k + k);
      const std::int32_t id = of.ids[pair], last = of.experts + of.zero + of.copy + of.consts;
      SlotRoute slot;
      if (token_active && (!by_pair || of.mask[pair])) {
        some = true;
        if (id < 0 || id >= last || (id < of.experts && !seen.insert(id).second)) {
          routes.faulty = true;
        } else {
          slot.weight = of.weights[pair];
          const std::int32_t copy = id - of.experts - of.zero, constant = copy - of.copy;
          if (id < of.experts) {
            slot.owner = of.shared_ranks + id;
            slot.smooth_row = of.shared + id;
          } else if (constant >= 0) {
            slot.special_row = static_cast<std::int32_t>(of.tokens * (1 + constant) + t);
          } else if (copy >= 0) {
            slot.special_row = static_cast<std::int32_t>(t);
          }
        }
      }
      routes.slots.push_back(slot);
    }
    for (std::int32_t j = 0; j < of.shared; ++j) {
      const std::int32_t each = of.shared_ranks / of.shared;
      routes.slots.push_back({some ? of.rank % each + j * each : -1, j, -1, 1});
    }
    routes.active.push_back(some ? 1 : 0);
  }
  return routes;
}

}  // namespace moecl::test::oracle
