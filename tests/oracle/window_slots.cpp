#include "tests/oracle/window_slots.hpp"

namespace moecl::test::oracle {
namespace {

/// The rank of each expert: one on each single rank, then consecutive runs; the first runs take the remainder.
std::vector<std::int32_t> owners(std::int32_t experts, std::int32_t ranks, std::int32_t singles) {
  std::vector<std::int32_t> of;
  for (std::int32_t rank = 0; rank < singles; ++rank) of.push_back(rank);
  const std::int32_t left = experts - singles, others = ranks - singles;
  for (std::int32_t i = 0; i < others; ++i)
    for (std::int32_t e = 0; e < left / others + (i < left % others ? 1 : 0); ++e) of.push_back(singles + i);
  return of;
}

}  // namespace

SentWindow sent_window(const std::vector<std::int32_t>& ids, std::int32_t experts, std::int32_t ranks,
                       std::int64_t capacity, std::int32_t singles) {
  SentWindow window{std::vector<std::int32_t>(static_cast<std::size_t>(ranks * capacity), -1),
                    std::vector<std::int32_t>(ids.size(), -1)};
  const std::vector<std::int32_t> owner = owners(experts, ranks, singles);
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
                                           std::int32_t rank, std::int64_t capacity, std::int32_t singles) {
  const auto ranks = static_cast<std::int32_t>(ids.size());
  const std::vector<std::int32_t> owner = owners(experts, ranks, singles);
  std::int32_t first = 0;
  while (first < experts && owner[static_cast<std::size_t>(first)] < rank) ++first;
  std::vector<std::int32_t> received;
  for (const std::vector<std::int32_t>& sender : ids) {
    const SentWindow window = sent_window(sender, experts, ranks, capacity, singles);
    for (std::int64_t i = rank * capacity; i < (rank + 1) * capacity; ++i) {
      const std::int32_t slot = window.slots[static_cast<std::size_t>(i)];
      received.push_back(slot < 0 ? -1 : sender[static_cast<std::size_t>(slot)] - first);
    }
  }
  return received;
}

std::vector<ReceivedRow> received_rows(const std::vector<std::vector<std::int32_t>>& ids, std::int32_t experts,
                                       std::int32_t rank, std::int64_t capacity, std::int32_t singles,
                                       std::int32_t& local_experts) {
  const auto ranks = static_cast<std::int32_t>(ids.size());
  const std::vector<std::int32_t> owner = owners(experts, ranks, singles);
  std::vector<ReceivedRow> rows;
  local_experts = 0;
  for (std::int32_t expert = 0; expert < experts; ++expert) {
    if (owner[static_cast<std::size_t>(expert)] != rank) continue;
    for (std::int32_t source = 0; source < ranks; ++source) {
      const std::vector<std::int32_t>& of = ids[static_cast<std::size_t>(source)];
      const SentWindow sent = sent_window(of, experts, ranks, capacity, singles);
      for (std::size_t slot = 0; slot < of.size(); ++slot)
        if (of[slot] == expert && sent.rows[slot] >= 0)
          rows.push_back({local_experts, source, static_cast<std::int32_t>(slot),
                          static_cast<std::int32_t>(sent.rows[slot] + (source - rank) * capacity)});
    }
    ++local_experts;
  }
  return rows;
}

std::vector<std::int32_t> token_return_rows(const std::vector<std::int32_t>& ids, std::int64_t top_k,
                                            std::int32_t first_expert, std::int32_t experts, std::int32_t ranks,
                                            std::int64_t capacity, bool sums) {
  const std::vector<std::int32_t> owner = owners(experts, ranks, 0);
  std::vector<std::int32_t> return_rows(ids.size(), -1);
  for (std::int64_t token = 0; token * top_k < static_cast<std::int64_t>(ids.size()); ++token)
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      std::int64_t came = 0;
      for (std::int64_t k = 0; k < top_k; ++k) {
        const auto slot = static_cast<std::size_t>(token * top_k + k);
        const std::int32_t expert = ids[slot] - first_expert;
        if (expert < 0 || expert >= experts || owner[static_cast<std::size_t>(expert)] != rank) continue;
        const std::int64_t place = rank * capacity + token;
        if (!sums) return_rows[slot] = static_cast<std::int32_t>(place * top_k + k);
        if (sums && came++ == 0) return_rows[slot] = static_cast<std::int32_t>(place);
      }
    }
  return return_rows;
}

}  // namespace moecl::test::oracle
