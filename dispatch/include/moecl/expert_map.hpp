#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace moecl {

/// Which experts a rank has: a consecutive run, or every R-th of R ranks.
enum class ExpertPlacement : std::uint8_t { linear, round_robin };
/// "linear", "round_robin"
const char* name(ExpertPlacement placement) noexcept;

/// Which global experts a rank of an expert-parallel group owns, and under which local index.
///
/// Linear: consecutive runs; the first ranks get one expert more where ranks do not divide E (30 experts on 8 ranks: 4
/// 4 4 4 4 4 3 3). Round robin: experts rank, rank + size, ... Fused shared experts are numbered after the E others.
/// Every rank has all of them, after its own experts.
/// Source: vLLM's determine_expert_map
struct ExpertMap {
  std::vector<std::int32_t> local_of;   ///< [E + fused shared] local index, or -1
  std::vector<std::int32_t> global_of;  ///< [local experts]
  std::vector<std::int32_t> mask;       ///< [E + fused shared + 1] 1 where local; the last entry is of no expert: 0

  /// Errors: invalid_argument  experts < 1, fused_shared < 0, or the rank is not in the group
  static ExpertMap make(std::int32_t experts, std::int32_t ranks, std::int32_t rank, ExpertPlacement placement,
                        std::int32_t fused_shared = 0);
};

/// A rank's experts in one line, as local->global: "0->4, 1->5". Source: vLLM's get_compressed_expert_map
std::string compressed_text(const std::vector<std::int32_t>& global_of);

}  // namespace moecl
