#include "tests/oracle/window_slots.hpp"

namespace moecl::test::oracle {
namespace {

/// The rank of each expert: consecutive runs, the remainder to the first ranks.
std::vector<std::int32_t> owners(std::int32_t experts, std::int32_t ranks) {
  std::vector<std::int32_t> of;
  for (std::int32_t rank = 0; rank < ranks; ++rank)
    for (std::int32_t i = 0; i < experts / ranks + (rank < experts % ranks ? 1 : 0); ++i) of.push_back(rank);
  return of;
}

}  // namespace

SentWindow sent_window(const std::vector<std::int32_t>& ids, std::int32_t experts, std::int32_t ranks,
                       std::int64_t capacity) {
  SentWindow window{std::vector<std::int32_t>(static_cast<std::size_t>(ranks * capacity), -1),
                    std::vector<std::int32_t>(ids.size(), -1)};
  const std::vector<std::int32_t> owner = owners(experts, ranks);
  std::vector<std::int64_t> filled(static_cast<std::size_t>(ranks));
  for (std::int32_t expert = 0; expert < experts; ++expert)
    for (std::size_t slot = 0; slot < ids.size(); ++slot) {
      const std::int32_t rank = owner[static_cast<std::size_t>(expert)];
      std::int64_t& rows = filled[static_cast<std::size_t>(rank)];
      if (ids[slot] != expert || rows == capacity) continue;
      const std::int64_t place = rank * capacity + rows++;
      window.slots[static_cast<std::size_t>(place)] = static_cast<std::int32_t>(slot);
      window.rows[slot] = static_cast<std::int32_t>(place);
    }
  return window;
}

std::vector<std::int32_t> received_experts(const std::vector<std::vector<std::int32_t>>& ids, std::int32_t experts,
                                           std::int32_t rank, std::int64_t capacity) {
  const auto ranks = static_cast<std::int32_t>(ids.size());
  const std::vector<std::int32_t> owner = owners(experts, ranks);
  std::int32_t first = 0;
  while (first < experts && owner[static_cast<std::size_t>(first)] < rank) ++first;
  std::vector<std::int32_t> received;
  for (const std::vector<std::int32_t>& sender : ids) {
    const SentWindow window = sent_window(sender, experts, ranks, capacity);
    for (std::int64_t i = rank * capacity; i < (rank + 1) * capacity; ++i) {
      const std::int32_t slot = window.slots[static_cast<std::size_t>(i)];
      received.push_back(slot < 0 ? -1 : sender[static_cast<std::size_t>(slot)] - first);
    }
  }
  return received;
}

}  // namespace moecl::test::oracle
