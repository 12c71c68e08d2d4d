#include "tests/oracle/expert_sort.hpp"

#include <algorithm>
#include <numeric>

namespace moecl::test::oracle {

SortedSlots expert_sort(const std::vector<std::int32_t>& ids, std::int32_t first, std::int32_t end, std::int32_t total,
                        std::int64_t rows_per_expert, bool may_drop) {
  std::vector<std::int32_t> order(ids.size());
  std::iota(order.begin(), order.end(), 0);
  const auto id = [&](std::int32_t slot) { return ids[static_cast<std::size_t>(slot)]; };
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return id(a) < id(b); });

  SortedSlots out;
  out.slot_rows.assign(ids.size(), -1);
  const auto fault = [&](std::int32_t code, std::int32_t slot) {
    if (out.fault_code != 0 && out.fault_slot < slot) return;
    out.fault_code = code;
    out.fault_slot = slot;
    out.fault_value = id(slot);
  };
  std::int32_t rows = 0;
  for (std::int32_t expert = first; expert < end; ++expert) {
    std::int64_t in_expert = 0;
    for (const std::int32_t slot : order) {
      if (id(slot) != expert) continue;
      if (rows_per_expert > 0 && in_expert == rows_per_expert) {
        if (!may_drop) fault(2, slot);
        break;
      }
      ++in_expert;
      out.slot_rows[static_cast<std::size_t>(slot)] = static_cast<std::int32_t>(out.sorted_slots.size());
      out.sorted_slots.push_back(slot);
      ++rows;
    }
    if (rows_per_expert > 0)
      out.sorted_slots.resize(static_cast<std::size_t>((expert - first + 1) * rows_per_expert), -1);
    out.row_ends.push_back(rows);
  }
  for (const std::int32_t slot : order)
    if (id(slot) < -1 || id(slot) >= total) fault(1, slot);
  return out;
}

}  // namespace moecl::test::oracle
