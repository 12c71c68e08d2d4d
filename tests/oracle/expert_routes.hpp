#pragma once
#include <cstdint>
#include <vector>

namespace moecl::test::oracle {

/// The inputs of the distributed operators on one rank.
struct RoutedTokens {
  std::int64_t tokens = 0, top_k = 0;
  std::vector<std::int32_t> ids;  ///< [T, K]
  std::vector<bool> mask;         ///< empty, [T] or [T, K]
  std::vector<float> weights;     ///< [T, K]
  std::int32_t experts = 0, zero = 0, copy = 0, consts = 0, shared = 0, shared_ranks = 0, rank = 0;
};

/// The route of one slot, by definition. A token's slots are its K pairs, then its shared experts.
struct SlotRoute {
  std::int32_t owner = -1, smooth_row = 0, special_row = -1;
  float weight = 0;
};
struct Routes {
  std::vector<SlotRoute> slots;      ///< [T, K + shared]
  std::vector<std::int32_t> active;  ///< [T]
  bool faulty = false;               ///< an id that does not exist, a repeated id, or a mask with a hole
};
Routes expert_routes(const RoutedTokens& of);

}  // namespace moecl::test::oracle
