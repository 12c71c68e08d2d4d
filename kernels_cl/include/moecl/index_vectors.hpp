#pragma once
#include <moecl/operator_cost.hpp>
#include <moecl/stream.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <string>

/// Small steps on vectors of indices, between the sorts and the kernels that move rows. All tensors are contiguous.
namespace moecl::index_vectors {

/// to[i] = from[i] if that is in [low, high). Else to[i] = otherwise, and the fault word is set.
struct Narrow {
  TensorView from;  ///< Shape: any of n elements, i32 or i64
  std::int32_t low = 0, high = 0;
  std::int32_t otherwise = -1;
  TensorView
      row_ends;      ///< optional. Shape: [E] i32: entries from row_ends[E - 1] on are not read: `otherwise`, no fault
  TensorView to;     ///< out. Shape: [n] i32; may be the i32 `from`
  TensorView fault;  ///< optional in/out. Shape: [4] i32, see fault.hpp: one of the faulty entries
};

/// out[i, k] = k * N + i: the slots of N tokens in the column-major order of npu_moe_init_routing.
/// Source: row_idx of npu_moe_gating_top_k_softmax
struct ColumnOrder {
  TensorView out;  ///< Shape: [N, K] i32
};

/// What npu_moe_init_routing returns beside the rows. For each j, with slot = sorted_slots[j] and v = row_idx[slot]:
/// source_row[j] = v % tokens, expanded_row_idx[v] = j, expanded_expert_idx[j] = ids[slot].
struct SortedRouting {
  TensorView sorted_slots;         ///< Shape: [S] i32, a permutation: stable_sort of ids
  TensorView ids;                  ///< Shape: S elements, i32
  TensorView row_idx;              ///< Shape: S elements, i32. Range: [0, S); others set the fault word, source_row -1
  std::int64_t tokens = 0;         ///< N; S = N * K
  TensorView source_row;           ///< out. Shape: [S] i32
  TensorView expanded_row_idx;     ///< out. Shape: [S] i32
  TensorView expanded_expert_idx;  ///< out. Shape: [S] i32
  TensorView fault;                ///< optional in/out. Shape: [4] i32, see fault.hpp: one of the faulty slots
};

/// counts[key] = the number of keys equal to key. Keys outside [0, E) are not counted.
/// Source: torch.histc of expert ids, as TokenDispatcherWithAll2AllV calls it
struct Histogram {
  TensorView keys;    ///< Shape: any of n elements, i32 or i64
  TensorView counts;  ///< out. Shape: [E] i32
};

/// counts[key] += the number of keys equal to key. Keys outside [0, E) are not counted. For few keys: one work-item for
/// each count reads all keys, without atomics.
struct KeyCounts {
  TensorView keys;    ///< Shape: any of n elements, i32
  TensorView counts;  ///< in/out. Shape: [E] i64
};

/// groups[row] = g % modulus for the rows of group g, -1 for rows past the last group. With [R, E] blocks of R ranks as
/// groups and modulus E, the result is expert ids, and their expert_sort is npu_moe_re_routing.
/// Source: torch.repeat_interleave of expert ids, as TokenDispatcherWithAll2AllV calls it
struct GroupOfRow {
  TensorView row_ends;       ///< Shape: [G] i32, cumulative
  std::int32_t modulus = 0;  ///< Range: [1, 2^31)
  TensorView groups;         ///< out. Shape: [rows] i32
};

/// ends[key] = the number of keys <= key: cumulative counts. Source: npu_moe_compute_expert_tokens
struct KeyEnds {
  TensorView keys;   ///< Shape: [S] i32
  TensorView order;  ///< optional. Shape: [S] i32, sorts the keys (sorted_slots of a sort); absent: keys are sorted
  TensorView ends;   ///< out. Shape: [T] i32
};

/// to[i] = from[i].
struct Widen {
  TensorView from;  ///< Shape: [n] i32
  TensorView to;    ///< out. Shape: [n] i64
};

/// counts[g] = rows of group g, row_ends[g] - row_ends[g - 1]; with `add` counts[g] grows by them.
/// Source: expert_num_tokens of vLLM
struct RowCounts {
  TensorView row_ends;  ///< Shape: [G] i32, cumulative
  TensorView counts;    ///< out, with `add` in/out. Shape: [G] i32 or i64
  bool add = false;
};

/// slots[row] = row if that row is valid, else -1. A combine by these slots keeps rows apart and reads only valid ones.
struct ValidRows {
  TensorView row_ends;               ///< Shape: [E] i32, cumulative
  std::int64_t rows_per_expert = 0;  ///< 0: standard layout; else batched, as in gather_rows
  TensorView slots;                  ///< out. Shape: [R] i32; batched R = E * rows_per_expert
};

/// Sets the fault word to FaultCode::other_call, with the index and value of an element of `got` that differs from
/// `expected`.
struct Expect {
  TensorView got;       ///< Shape: [n] i32
  TensorView expected;  ///< Shape: [n] i32
  TensorView fault;     ///< in/out. Shape: [4] i32, see fault.hpp
};

/// Why this cannot run; empty when it can.
std::string reject(const Narrow& args);
std::string reject(const ColumnOrder& args);
std::string reject(const SortedRouting& args);
std::string reject(const Histogram& args);
std::string reject(const KeyCounts& args);
std::string reject(const GroupOfRow& args);
std::string reject(const KeyEnds& args);
std::string reject(const Widen& args);
std::string reject(const RowCounts& args);
std::string reject(const ValidRows& args);
std::string reject(const Expect& args);
/// Errors: invalid_argument  `reject` says why
/// Async:  one kernel; a Histogram first fills its counts with 0. Empty: zero elements enqueue no kernel
void enqueue(StreamView stream, const Narrow& args, Submit submit = {});
void enqueue(StreamView stream, const ColumnOrder& args, Submit submit = {});
void enqueue(StreamView stream, const SortedRouting& args, Submit submit = {});
void enqueue(StreamView stream, const Histogram& args, Submit submit = {});
void enqueue(StreamView stream, const KeyCounts& args, Submit submit = {});
void enqueue(StreamView stream, const GroupOfRow& args, Submit submit = {});
void enqueue(StreamView stream, const KeyEnds& args, Submit submit = {});
void enqueue(StreamView stream, const Widen& args, Submit submit = {});
void enqueue(StreamView stream, const RowCounts& args, Submit submit = {});
void enqueue(StreamView stream, const ValidRows& args, Submit submit = {});
void enqueue(StreamView stream, const Expect& args, Submit submit = {});

}  // namespace moecl::index_vectors
