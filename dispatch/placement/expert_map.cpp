#include <moecl/expert_map.hpp>

#include <algorithm>

#include "runtime/check.hpp"

namespace moecl {

const char* name(ExpertPlacement placement) noexcept {
  return placement == ExpertPlacement::linear ? "linear" : "round_robin";
}

ExpertMap ExpertMap::make(std::int32_t experts, std::int32_t ranks, std::int32_t rank, ExpertPlacement placement,
                          std::int32_t fused_shared) {
  require(experts >= 1 && fused_shared >= 0, "expert map: {} experts and {} fused shared ones", experts, fused_shared);
  require(ranks >= 1 && rank >= 0 && rank < ranks, "expert map: rank {} is not in a group of {}", rank, ranks);
  const std::int32_t base = experts / ranks, remainder = experts % ranks;
  const std::int32_t local = base + (rank < remainder ? 1 : 0);
  const std::int32_t first = rank * base + std::min(rank, remainder);
  ExpertMap map;
  for (std::int32_t i = 0; i < local; ++i)
    map.global_of.push_back(placement == ExpertPlacement::linear ? first + i : rank + i * ranks);
  for (std::int32_t i = 0; i < fused_shared; ++i) map.global_of.push_back(experts + i);
  const auto all = static_cast<std::size_t>(experts) + static_cast<std::size_t>(fused_shared);
  map.local_of.assign(all, -1);
  map.mask.assign(all + 1, 0);
  for (std::size_t i = 0; i < map.global_of.size(); ++i) {
    const auto global = static_cast<std::size_t>(map.global_of[i]);
    map.local_of[global] = static_cast<std::int32_t>(i);
    map.mask[global] = 1;
  }
  return map;
}

std::string compressed_text(const std::vector<std::int32_t>& global_of) {
  std::string text;
  for (std::size_t local = 0; local < global_of.size(); ++local)
    text += fmt::format("{}{}->{}", local == 0 ? "" : ", ", local, global_of[local]);
  return text;
}

}  // namespace moecl
