#pragma once
#include <cstdint>
#include <vector>

namespace moecl::test::oracle {

/// A sender's window: the slots that go to each rank, one slab of `capacity` rows per rank, and each slot's row.
struct SentWindow {
  std::vector<std::int32_t> slots;  ///< [R * capacity], -1 where no row is
  std::vector<std::int32_t> rows;   ///< [S], -1 for slots without an expert or past the capacity
};
/// Fills the window expert by expert, slot by slot. @param ids  [S] global experts, or -1
/// @param singles  the number of first ranks that own one expert each
SentWindow sent_window(const std::vector<std::int32_t>& ids, std::int32_t experts, std::int32_t ranks,
                       std::int64_t capacity, std::int32_t singles = 0);

/// The local expert of each row that `rank` finds in its window, or -1. @param ids  of every sender
std::vector<std::int32_t> received_experts(const std::vector<std::vector<std::int32_t>>& ids, std::int32_t experts,
                                           std::int32_t rank, std::int64_t capacity, std::int32_t singles = 0);

/// A row that `rank` gets: its local expert, its source rank and slot, and its place in the window.
struct ReceivedRow {
  std::int32_t expert, source, slot, place;
};
/// Rows in the order expert, source rank, slot. Sets `local_experts` to the number of the rank's experts.
std::vector<ReceivedRow> received_rows(const std::vector<std::vector<std::int32_t>>& ids, std::int32_t experts,
                                       std::int32_t rank, std::int64_t capacity, std::int32_t singles,
                                       std::int32_t& local_experts);

/// For each slot of the tokens, the row where its result will stand, in slabs of `capacity` tokens per rank. Each slot
/// has a row of its own; with `sums`, each rank returns one sum per token, given at that rank's first slot.
/// @param ids  [T * top_k]; no rank owns an id outside [first_expert, first_expert + experts)
std::vector<std::int32_t> token_return_rows(const std::vector<std::int32_t>& ids, std::int64_t top_k,
                                            std::int32_t first_expert, std::int32_t experts, std::int32_t ranks,
                                            std::int64_t capacity, bool sums);

}  // namespace moecl::test::oracle
