#pragma once
#include <moecl/operator_cost.hpp>
#include <moecl/stream.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <string>

/// Where rows stand in windows of fixed capacity: one slab of `capacity` rows for each of the R ranks, filled from the
/// front; rows past the capacity are left out. Indices only, from row ends on the device, so that no host ever needs
/// the counts.
///
/// Rank r owns the experts of one linear run; the E % R first ranks have one more (ExpertMap). With `singles` that many
/// first ranks own one expert each, the others share the rest so. Row ends are those of a sort by global expert, so the
/// rows of a rank's experts are neighbours.
/// Source: the exchange windows and counts of npu_moe_distribute_dispatch
namespace moecl::window_slots {

/// What goes into the sender's window: slots[d * capacity + i] is the slot of the i-th row for rank d, or -1.
struct Outgoing {
  TensorView row_ends;      ///< Shape: [E] i32, of this rank's slots sorted by global expert
  TensorView sorted_slots;  ///< Shape: [S] i32
  std::int32_t ranks = 1;   ///< R
  TensorView slots;         ///< out. Shape: [R * capacity] i32
  std::int32_t singles = 0;
};

/// What a window that was received holds: ids[r * capacity + i] is the local expert of the i-th row from rank r, or -1.
/// A stable expert_sort of them gives the rows in the order expert, source rank, token.
struct Incoming {
  TensorView row_ends;    ///< Shape: [R, E] i32: every rank's
  std::int32_t rank = 0;  ///< who received
  TensorView ids;         ///< out. Shape: [R * capacity, 1] i32
  std::int32_t singles = 0;
};

/// The rows in which this rank's own slots come back: rows[slot] = d * capacity + i as in Outgoing, or -1.
struct ReturnRows {
  TensorView row_ends;   ///< Shape: [E] i32
  TensorView slot_rows;  ///< Shape: [S] i32, of the same sort
  std::int32_t ranks = 1;
  std::int64_t capacity = 0;
  TensorView rows;  ///< out. Shape: [S] i32
  std::int32_t singles = 0;
};

/// The same for slabs of `capacity` tokens: slot (t, k) comes back from the rank of its expert in row
/// (rank * capacity + t) * K + k; or with `sums`, the rank's sum of the token in row rank * capacity + t for the first
/// k of the rank, and -1 for its others. -1 where there is no expert.
struct TokenReturnRows {
  TensorView ids;  ///< Shape: [T, K] i32
  std::int32_t first_expert = 0, experts = 1;
  std::int32_t ranks = 1;
  std::int64_t capacity = 0;
  bool sums = false;
  TensorView return_rows;  ///< out. Shape: [T * K] i32
  TensorView fault;  ///< optional in/out. Shape: [4] i32: expert_id_out_of_range for ids below -1 or past the experts
};

/// How many rows came: cumulative over (local expert, source rank), and for each local expert.
struct Counts {
  TensorView row_ends;  ///< Shape: [R, E] i32: every rank's
  std::int32_t rank = 0;
  TensorView recv_ends;     ///< out. Shape: [local experts * R] i32
  TensorView token_nums;    ///< out. Shape: [local experts] i64
  bool cumulative = false;  ///< of token_nums
  std::int32_t singles = 0;
};

/// Where each received row comes from: triples[3 * row] = {source rank, token, column}, row in the order of the sort of
/// what was received. Triples past the rows are untouched.
///
/// A place of the window has `each` slots: those of a whole token, or one. The slot at sorted_slots[j] is number
/// slots[sorted_slots[j] / each] / divisor * each + sorted_slots[j] % each of its rank.
struct Sources {
  TensorView row_ends;       ///< Shape: [local experts] i32, of that sort
  TensorView sorted_slots;   ///< Shape: [rows] i32: row j is of that slot of the window
  TensorView slots;          ///< Shape: [R * capacity] i32: what every rank's Outgoing says about this one
  std::int32_t ranks = 1;    ///< R
  std::int32_t columns = 1;  ///< slots of a token
  TensorView triples;        ///< out. Shape: [n] i32, n >= 3 * rows
  std::int32_t each = 1;
  std::int32_t divisor = 1;
};

/// Which of G groups of neighbouring owners a token reaches: ids[t, g] = g * slabs + t / (T / slabs) where an owner of
/// the group is among owners[t], else -1. Group g has the owners from first_owner + g * owners_each on. A stable
/// expert_sort of them lists each group's tokens, once each, slab by slab; slot / G is the token.
struct ReachedGroups {
  TensorView owners;  ///< Shape: [T, C] i32; others than those of the groups are nobody's
  std::int32_t first_owner = 0, owners_each = 1;
  std::int32_t slabs = 1;  ///< divides T: tokens stand in so many, one of each source
  TensorView ids;          ///< out. Shape: [T, G] i32
};

/// The inverse: the slot of the source rank that each row of a returning window, filled by `rows`, is of; -1 at empty
/// places, -2 where the triple is missing or names another rank.
struct SourceSlots {
  TensorView rows;     ///< Shape: [R * capacity] i32: Outgoing's slots
  TensorView triples;  ///< Shape: [n] i32
  std::int32_t ranks = 1;
  std::int32_t columns = 1;
  TensorView slots;  ///< out. Shape: [R * capacity] i32
};

/// The destination of each row where rows of a server are summed: tokens[i] = server * tokens_each + token of the rank
/// (server, index) that the row at place i goes to; -1 at empty places and where the triple is missing or names another
/// rank.
struct DestinationTokens {
  TensorView rows;     ///< Shape: [R * capacity] i32: Outgoing's slots
  TensorView triples;  ///< Shape: [n] i32
  std::int32_t ranks = 1;
  std::int32_t ranks_per_server = 1;  ///< rank = server * ranks_per_server + index
  std::int64_t tokens_each = 0;
  TensorView tokens;  ///< out. Shape: [R * capacity] i32
};

/// positions[t, k] = how many earlier slots of this rank have the same expert; 0 where the slot has none.
/// Source: expand_idx of npu_moe_distribute_dispatch (v1)
struct PositionsInExpert {
  TensorView row_ends;       ///< Shape: [E] i32
  TensorView slot_rows;      ///< Shape: [T * columns] i32, of the same sort
  std::int32_t columns = 1;  ///< slots of a token, of which the first K count
  TensorView positions;      ///< out. Shape: [T, K] i32
};

/// Why this cannot run; empty when it can.
std::string reject(const Outgoing& args);
std::string reject(const Incoming& args);
std::string reject(const ReturnRows& args);
std::string reject(const TokenReturnRows& args);
std::string reject(const Counts& args);
std::string reject(const Sources& args);
std::string reject(const ReachedGroups& args);
std::string reject(const SourceSlots& args);
std::string reject(const DestinationTokens& args);
std::string reject(const PositionsInExpert& args);
/// Errors: invalid_argument  `reject` says why
/// Async:  one kernel. Empty: no elements enqueue nothing
void enqueue(StreamView stream, const Outgoing& args, Submit submit = {});
void enqueue(StreamView stream, const Incoming& args, Submit submit = {});
void enqueue(StreamView stream, const ReturnRows& args, Submit submit = {});
void enqueue(StreamView stream, const TokenReturnRows& args, Submit submit = {});
void enqueue(StreamView stream, const Counts& args, Submit submit = {});
void enqueue(StreamView stream, const Sources& args, Submit submit = {});
void enqueue(StreamView stream, const ReachedGroups& args, Submit submit = {});
void enqueue(StreamView stream, const SourceSlots& args, Submit submit = {});
void enqueue(StreamView stream, const DestinationTokens& args, Submit submit = {});
void enqueue(StreamView stream, const PositionsInExpert& args, Submit submit = {});
OperatorCost cost(const Outgoing& args);
OperatorCost cost(const Incoming& args);
OperatorCost cost(const ReturnRows& args);
OperatorCost cost(const TokenReturnRows& args);

}  // namespace moecl::window_slots
