#include <moecl/expert_map.hpp>

#include <algorithm>

#include "runtime/check.hpp"

namespace moecl {

ExpertMap ExpertMap::make(std::int32_t experts, std::int32_t ranks, std::int32_t rank, ExpertPlacement placement) {
  require(experts >= 1, "expert map: {} experts", experts);
  require(ranks >= 1 && rank >= 0 && rank < ranks, "expert map: rank {} is not in a group of {}", rank, ranks);
  const std::int32_t base = experts / ranks, remainder = experts % ranks;
  const std::int32_t local = base + (rank < remainder ? 1 : 0);
  const std::int32_t first = rank * base + std::min(rank, remainder);
  ExpertMap map;
  map.local_of.assign(static_cast<std::size_t>(experts), -1);
  for (std::int32_t i = 0; i < local; ++i) {
    const std::int32_t global = placement == ExpertPlacement::linear ? first + i : rank + i * ranks;
    map.local_of[static_cast<std::size_t>(global)] = i;
    map.global_of.push_back(global);
  }
  return map;
}

}  // namespace moecl
