#include "tests/oracle/physical_experts.hpp"

namespace moecl::test::oracle {

std::vector<std::int32_t> physical_experts(const std::vector<std::int32_t>& ids, std::int64_t top_k,
                                           const std::vector<std::vector<std::int32_t>>& places,
                                           std::int64_t first_token) {
  std::vector<std::int32_t> physical;
  for (std::size_t slot = 0; slot < ids.size(); ++slot) {
    const auto token = static_cast<std::uint64_t>(first_token) + slot / static_cast<std::uint64_t>(top_k);
    const std::uint64_t hash = (token % (1ULL << 32)) * 2654435769ULL % (1ULL << 32);
    const auto expert = static_cast<std::size_t>(ids[slot]);
    const bool stands = ids[slot] >= 0 && expert < places.size() && !places[expert].empty();
    physical.push_back(stands ? places[expert][hash % places[expert].size()] : -1);
  }
  return physical;
}

}  // namespace moecl::test::oracle
