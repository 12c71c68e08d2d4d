// Row indices of fixed-capacity windows: one work-item an element.

#include "kernels_cl/exchange/slot_homes.clh"

__kernel void window_slots_outgoing(const __global int* row_ends, ulong row_ends_first, const __global int* sorted_slots,
                                    ulong sorted_first, __global int* slots, ulong slots_first, int count, int experts,
                                    int ranks, int singles, int capacity) {
  const int i = get_global_id(0);
  if (i >= count) return;
  const Owners owners = {experts, ranks, singles};
  row_ends += row_ends_first;
  const int rank = i / capacity;
  const int row = rows_before(row_ends, first_expert_of(owners, rank)) + i % capacity;
  const bool filled = row < rows_before(row_ends, first_expert_of(owners, rank + 1));
  slots[slots_first + i] = filled ? sorted_slots[sorted_first + row] : -1;
}

__kernel void window_slots_incoming(const __global int* row_ends, ulong row_ends_first, __global int* ids, ulong ids_first,
                                    int count, int experts, int ranks, int singles, int capacity, int rank) {
  const int i = get_global_id(0);
  if (i >= count) return;
  const Owners owners = {experts, ranks, singles};
  row_ends += row_ends_first + (long)(i / capacity) * experts;
  const int first = first_expert_of(owners, rank), end = first_expert_of(owners, rank + 1);
  const int row = rows_before(row_ends, first) + i % capacity;
  ids[ids_first + i] = row < rows_before(row_ends, end) ? expert_of_row(row_ends, experts, row) - first : -1;
}

__kernel void window_slots_home(const __global int* row_ends, ulong row_ends_first, const __global int* slot_rows,
                                ulong slot_rows_first, __global int* rows, ulong rows_first, int count, int experts,
                                int ranks, int singles, int capacity) {
  const int slot = get_global_id(0);
  if (slot >= count) return;
  const Owners owners = {experts, ranks, singles};
  row_ends += row_ends_first;
  const int row = slot_rows[slot_rows_first + slot];
  int home = -1;
  if (row >= 0) {
    const int rank = rank_of_expert(owners, expert_of_row(row_ends, experts, row));
    const int in_slab = row - rows_before(row_ends, first_expert_of(owners, rank));
    if (in_slab < capacity) home = rank * capacity + in_slab;
  }
  rows[rows_first + slot] = home;
}

// Slot i of the tokens' ids.
__kernel void window_slots_token_homes(const __global int* ids, ulong ids_first, __global int* homes, ulong homes_first,
                                     __global int* fault, ulong fault_first, int count, int top_k, int first_expert,
                                     int experts, int ranks, int capacity, int sums) {
  const int i = get_global_id(0);
  if (i >= count) return;
  const Owners owners = {experts, ranks, 0};
  if (fault) fault += fault_first;
  homes[homes_first + i] = home_of_slot(owners, first_expert, ids + ids_first, i, top_k, capacity, sums, fault);
}

// Element i of the ends is that of (expert i / ranks, source rank i % ranks).
__kernel void window_slots_counts(const __global int* row_ends, ulong row_ends_first, __global int* recv_ends,
                                  ulong recv_first, __global long* token_nums, ulong nums_first, int count, int experts,
                                  int ranks, int singles, int rank, int cumulative) {
  const int i = get_global_id(0);
  if (i >= count) return;
  const Owners owners = {experts, ranks, singles};
  const int first = first_expert_of(owners, rank), expert = first + i / ranks, source = i % ranks;
  int before = 0, mine = 0;
  for (int r = 0; r < ranks; ++r) {
    const __global int* ends = row_ends + row_ends_first + (long)r * experts;
    before += rows_before(ends, expert) - rows_before(ends, first);
    if (r <= source) mine += ends[expert] - rows_before(ends, expert);
  }
  recv_ends[recv_first + i] = before + mine;
  if (source == ranks - 1) token_nums[nums_first + i / ranks] = cumulative ? before + mine : mine;
}

// The triple {source rank, token, column} of each row.
__kernel void window_slots_sources(const __global int* row_ends, ulong row_ends_first, const __global int* sorted_slots,
                                   ulong sorted_first, const __global int* slots, ulong slots_first,
                                   __global int* triples, ulong triples_first, int count, int experts, int capacity,
                                   int columns) {
  const int row = get_global_id(0);
  if (row >= count || row >= row_ends[row_ends_first + experts - 1]) return;
  const int place = sorted_slots[sorted_first + row], slot = slots[slots_first + place];
  triples += triples_first + 3 * (long)row;
  triples[0] = place / capacity;
  triples[1] = slot / columns;
  triples[2] = slot % columns;
}

// The inverse: what slot of rank i / capacity the row at place i says it is of; -2 where it is another rank's.
__kernel void window_slots_claims(const __global int* rows, ulong rows_first, const __global int* triples,
                                  ulong triples_first, __global int* slots, ulong slots_first, int count, int triple_count,
                                  int capacity, int columns) {
  const int i = get_global_id(0);
  if (i >= count) return;
  const int row = rows[rows_first + i];
  int slot = row < 0 ? -1 : -2;
  if (row >= 0 && row < triple_count) {
    triples += triples_first + 3 * (long)row;
    if (triples[0] == i / capacity) slot = (int)((uint)triples[1] * (uint)columns + (uint)triples[2]);
  }
  slots[slots_first + i] = slot;
}

// The token that the row at place i is summed for, among those that the ranks with the same index on all servers have;
// -1 where there is none.
__kernel void window_slots_homes(const __global int* rows, ulong rows_first, const __global int* triples,
                                 ulong triples_first, __global int* tokens, ulong tokens_first, int count,
                                 int triple_count, int capacity, int ranks_per_server, int tokens_each) {
  const int i = get_global_id(0);
  if (i >= count) return;
  const int row = rows[rows_first + i], home = i / capacity;
  int token = -1;
  if (row >= 0 && row < triple_count) {
    triples += triples_first + 3 * (long)row;
    if (triples[0] == home && triples[1] >= 0 && triples[1] < tokens_each)
      token = home / ranks_per_server * tokens_each + triples[1];
  }
  tokens[tokens_first + i] = token;
}

// How many earlier slots have the same expert; 0 where a slot has none.
__kernel void window_slots_ordinals(const __global int* row_ends, ulong row_ends_first, const __global int* slot_rows,
                                    ulong slot_rows_first, __global int* ordinals, ulong ordinals_first, int count,
                                    int experts, int columns, int top_k) {
  const int i = get_global_id(0);
  if (i >= count) return;
  row_ends += row_ends_first;
  const int row = slot_rows[slot_rows_first + i / top_k * columns + i % top_k];
  ordinals[ordinals_first + i] = row < 0 ? 0 : row - rows_before(row_ends, expert_of_row(row_ends, experts, row));
}
