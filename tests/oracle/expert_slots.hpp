#pragma once
#include <cstdint>
#include <utility>
#include <vector>

namespace moecl::test::oracle {

/// Which expert loses its slot: the one of least priority; of equal ones, that in the lower slot.
enum class SlotPolicy { lru, least_stale, fixed };

/// The assignment of experts to slots, kept up to date product after product.
struct ExpertSlots {
  std::vector<std::int32_t> slots, holders;  ///< each expert's slot, each slot's expert; -1: none
  std::vector<std::int32_t> priorities;  ///< of each expert. lru: the last pass that used it; others: bits of a float
  std::vector<bool> awaited;             ///< of each slot: a foreseen claim filled it, and no pass has used it since
  std::int64_t hits = 0, misses = 0, passes = 0, prefetched = 0, prefetched_hits = 0;

  ExpertSlots(std::int64_t experts, std::int64_t count)
      : slots(static_cast<std::size_t>(experts), -1),
        holders(static_cast<std::size_t>(count), -1),
        priorities(static_cast<std::size_t>(experts)),
        awaited(static_cast<std::size_t>(count)) {}

  /// Gives slots to the used experts of [first, first + count). Those that already have a slot keep it.
  /// @param fading  what a use is worth one pass later. @return  the experts to fetch, and their slots
  std::vector<std::pair<std::int32_t, std::int32_t>> claim(const std::vector<bool>& used, std::int32_t first,
                                                           std::int32_t count, SlotPolicy policy, float fading,
                                                           bool new_pass);
  /// The same, restricted to slots [first_slot, first_slot + slot_count): experts in other slots count as absent.
  /// @param foreseen  the claim is for a later pass: priorities do not change
  std::vector<std::pair<std::int32_t, std::int32_t>> claim_part(const std::vector<bool>& used, std::int32_t first,
                                                                std::int32_t count, SlotPolicy policy, float fading,
                                                                bool new_pass, std::int32_t first_slot,
                                                                std::int32_t slot_count, bool foreseen);
};

}  // namespace moecl::test::oracle
