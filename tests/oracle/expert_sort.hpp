#pragma once
#include <cstdint>
#include <vector>

namespace moecl::test::oracle {

struct SortedSlots {
  std::vector<std::int32_t> row_ends, sorted_slots, slot_rows;  ///< sorted_slots: -1 where there is no row
  std::int32_t fault_code = 0, fault_slot = 0, fault_value = 0;
};

/// Stable sort of the slots by expert, for the experts of [first, end). Unlike the device's, it is a comparison sort.
SortedSlots expert_sort(const std::vector<std::int32_t>& ids, std::int32_t first, std::int32_t end, std::int32_t total,
                        std::int64_t rows_per_expert, bool may_drop = false);

}  // namespace moecl::test::oracle
