#pragma once
#include <cstdint>
#include <vector>

namespace moecl::test::oracle {

/// A sender's window: the slots that go to each rank, one slab of `capacity` a rank, and where each slot stands.
struct SentWindow {
  std::vector<std::int32_t> slots;  ///< [R * capacity], -1 where no row is
  std::vector<std::int32_t> rows;   ///< [S], -1 for slots without an expert or past the capacity
};
/// Filled slot by slot, expert by expert. @param ids  [S] global experts, or -1
/// @param singles  so many first ranks own one expert each
SentWindow sent_window(const std::vector<std::int32_t>& ids, std::int32_t experts, std::int32_t ranks,
                       std::int64_t capacity, std::int32_t singles = 0);

/// What `rank` finds in its window: the local expert of each row, or -1. @param ids  of every sender
std::vector<std::int32_t> received_experts(const std::vector<std::vector<std::int32_t>>& ids, std::int32_t experts,
                                           std::int32_t rank, std::int64_t capacity, std::int32_t singles = 0);

/// A row that `rank` gets: its local expert, whose it is, and where it stands in the window.
struct ReceivedRow {
  std::int32_t expert, source, slot, place;
};
/// In the order expert, source rank, slot. Sets the number of the rank's experts.
std::vector<ReceivedRow> received_rows(const std::vector<std::vector<std::int32_t>>& ids, std::int32_t experts,
                                       std::int32_t rank, std::int64_t capacity, std::int32_t singles,
                                       std::int32_t& local_experts);

/// Where what comes back for each slot of the tokens will stand, in slabs of `capacity` tokens a rank: each slot's row,
/// or one sum of each rank, at the first slot that is of it. @param ids  [T * top_k]; others than those experts are
/// nobody's
std::vector<std::int32_t> token_return_rows(const std::vector<std::int32_t>& ids, std::int64_t top_k,
                                            std::int32_t first_expert, std::int32_t experts, std::int32_t ranks,
                                            std::int64_t capacity, bool sums);

}  // namespace moecl::test::oracle
