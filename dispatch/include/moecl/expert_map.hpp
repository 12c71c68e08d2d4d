#pragma once
#include <cstdint>
#include <vector>

namespace moecl {

enum class ExpertPlacement : std::uint8_t { linear, round_robin };

/// Which global experts a rank of an expert-parallel group owns, and under which local index.
///
/// Linear: consecutive runs, the remainder to the first ranks (30 experts on 8 ranks: 4 4 4 4 4 4 3 3). Round robin:
/// experts rank, rank + size, ...
/// Source: vLLM's determine_expert_map
struct ExpertMap {
  std::vector<std::int32_t> local_of;   ///< [E] local index, or -1
  std::vector<std::int32_t> global_of;  ///< [local experts]

  /// Errors: invalid_argument  experts < 1, or the rank is not in the group
  static ExpertMap make(std::int32_t experts, std::int32_t ranks, std::int32_t rank, ExpertPlacement placement);
};

}  // namespace moecl
