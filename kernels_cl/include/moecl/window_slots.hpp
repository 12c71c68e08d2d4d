#pragma once
#include <moecl/operator_cost.hpp>
#include <moecl/stream.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <string>

/// Computes where rows stand in windows of fixed capacity. A window has one slab of `capacity` rows for each of the R
/// ranks, filled from the front; rows past the capacity are left out. The kernels make indices only, from row ends on
/// the device, so that the host never needs the counts.
///
/// Each rank owns a run of consecutive experts; the first E % R ranks own one more (ExpertMap). With `singles`, the
/// first `singles` ranks own one expert each, and the other ranks share the rest as above. Row ends are those of a sort
/// by global expert, so the rows of a rank's experts are adjacent.
/// Source: the exchange windows and counts of npu_moe_distribute_dispatch
namespace moecl::window_slots {

/// The content of the sender's window: slots[d * capacity + i] is the slot of the i-th row for rank d, or -1.
struct Outgoing {
  TensorView row_ends;      ///< Shape: [E] i32, of this rank's slots sorted by global expert
  TensorView sorted_slots;  ///< Shape: [S] i32
  std::int32_t ranks = 1;   ///< R
  TensorView slots;         ///< out. Shape: [R * capacity] i32
  std::int32_t singles = 0;
};

/// The content of a received window: ids[r * capacity + i] is the local expert of the i-th row from rank r, or -1.
/// A stable expert_sort of `ids` gives the rows in the order expert, source rank, token.
struct Incoming {
  TensorView row_ends;    ///< Shape: [R, E] i32: of all ranks
  std::int32_t rank = 0;  ///< the receiver
  TensorView ids;         ///< out. Shape: [R * capacity, 1] i32
  std::int32_t singles = 0;
};

/// The window rows in which the slots of this rank come back: rows[slot] = d * capacity + i as in Outgoing, or -1.
struct ReturnRows {
  TensorView row_ends;   ///< Shape: [E] i32
  TensorView slot_rows;  ///< Shape: [S] i32, of the same sort
  std::int32_t ranks = 1;
  std::int64_t capacity = 0;
  TensorView rows;  ///< out. Shape: [S] i32
  std::int32_t singles = 0;
};

/// The same for slabs of `capacity` tokens. Slot (t, k) comes back from the rank of its expert, in row (rank * capacity
/// + t) * K + k. With `sums` a rank returns one sum per token, in row rank * capacity + t: the first slot of the token
/// that belongs to the rank has this row, its other slots have -1. Slots without an expert have -1.
struct TokenReturnRows {
  TensorView ids;  ///< Shape: [T, K] i32
  std::int32_t first_expert = 0, experts = 1;
  std::int32_t ranks = 1;
  std::int64_t capacity = 0;
  bool sums = false;
  TensorView return_rows;  ///< out. Shape: [T * K] i32
  TensorView fault;  ///< optional in/out. Shape: [4] i32: expert_id_out_of_range for ids below -1 or past the experts
};

/// How many rows were received: cumulative over (local expert, source rank), and for each local expert.
struct Counts {
  TensorView row_ends;  ///< Shape: [R, E] i32: of all ranks
  std::int32_t rank = 0;
  TensorView recv_ends;     ///< out. Shape: [local experts * R] i32
  TensorView token_nums;    ///< out. Shape: [local experts] i64
  bool cumulative = false;  ///< token_nums is cumulative
  std::int32_t singles = 0;
};

/// Where each received row comes from: triples[3 * row] = {source rank, token, column}. Rows are in the order of the
/// sort of the received slots. Triples past the rows stay untouched.
///
/// A place of the window has `each` slots: all those of a token, or one. Row j belongs to slot s = sorted_slots[j] of
/// the window, which has the number slots[s / each] / divisor * each + s % each in its source rank.
struct Sources {
  TensorView row_ends;       ///< Shape: [local experts] i32, of that sort
  TensorView sorted_slots;   ///< Shape: [rows] i32: the slot of row j in the window
  TensorView slots;          ///< Shape: [R * capacity] i32: Outgoing::slots of every rank, the part for this rank
  std::int32_t ranks = 1;    ///< R
  std::int32_t columns = 1;  ///< slots per token
  TensorView triples;        ///< out. Shape: [n] i32, n >= 3 * rows
  std::int32_t each = 1;
  std::int32_t divisor = 1;
};

/// Which of G groups of neighbouring owners a token reaches: ids[t, g] = g * slabs + t / (T / slabs) if owners[t] has
/// an owner of group g, else -1. Group g has the `owners_each` owners from first_owner + g * owners_each on. A stable
/// expert_sort of `ids` lists the tokens of each group once, slab by slab; slot / G is the token.
struct ReachedGroups {
  TensorView owners;  ///< Shape: [T, C] i32; owners outside the groups are ignored
  std::int32_t first_owner = 0, owners_each = 1;
  std::int32_t slabs = 1;  ///< number of slabs of tokens, one for each source; divides T
  TensorView ids;          ///< out. Shape: [T, G] i32
};

/// The inverse of Sources for a returning window, which `rows` fills: slots[i] is the source rank's slot of the row at
/// place i; -1 at empty places, -2 if the triple is missing or names another rank.
struct SourceSlots {
  TensorView rows;     ///< Shape: [R * capacity] i32: Outgoing's slots
  TensorView triples;  ///< Shape: [n] i32
  std::int32_t ranks = 1;
  std::int32_t columns = 1;
  TensorView slots;  ///< out. Shape: [R * capacity] i32
};

/// The destination of each row when the rows of a server are summed. The row at place i goes to a token of rank
/// (server, index): tokens[i] = server * tokens_each + token. -1 at empty places, and if the triple is missing or names
/// another rank.
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
  std::int32_t columns = 1;  ///< slots per token; only the first K count
  TensorView positions;      ///< out. Shape: [T, K] i32
};

/// Why `args` cannot run; empty when they can.
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
/// Async:  one kernel. Empty: without elements nothing is enqueued
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
