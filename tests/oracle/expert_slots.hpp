#pragma once
#include <cstdint>
#include <utility>
#include <vector>

namespace moecl::test::oracle {

/// Who gives its slot away: the expert of least priority, of equal ones the lower slot.
enum class SlotPolicy { lru, least_stale, fixed };

/// What experts and slots are to each other, product after product.
struct ExpertSlots {
  std::vector<std::int32_t> slots, holders;  ///< of each expert its slot, of each slot its expert; -1: none
  std::vector<std::int32_t> priorities;  ///< of each expert: of lru the pass that used it last, else bits of a float
  std::vector<bool> awaited;             ///< of each slot: a foreseen claim gave it, and nobody has used it since
  std::int64_t hits = 0, misses = 0, passes = 0, prefetched = 0, prefetched_hits = 0;

  ExpertSlots(std::int64_t experts, std::int64_t count)
      : slots(static_cast<std::size_t>(experts), -1),
        holders(static_cast<std::size_t>(count), -1),
        priorities(static_cast<std::size_t>(experts)),
        awaited(static_cast<std::size_t>(count)) {}

  /// Experts of [first, first + count) that are used come; those of them that stay, stay.
  /// @param fading  what a use is worth a pass later. @return  who is fetched, and to which slot
  std::vector<std::pair<std::int32_t, std::int32_t>> claim(const std::vector<bool>& used, std::int32_t first,
                                                           std::int32_t count, SlotPolicy policy, float fading,
                                                           bool new_pass);
  /// The same, where only those slots may be taken, and others do not count. @param foreseen  for later: priorities
  /// stay
  std::vector<std::pair<std::int32_t, std::int32_t>> claim_part(const std::vector<bool>& used, std::int32_t first,
                                                                std::int32_t count, SlotPolicy policy, float fading,
                                                                bool new_pass, std::int32_t first_slot,
                                                                std::int32_t slot_count, bool foreseen);
};

}  // namespace moecl::test::oracle
