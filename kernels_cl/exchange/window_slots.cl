// Row indices of windows of fixed capacity. One work-item per element.
#include "kernels_cl/exchange/return_rows.clh"
#include "kernels_cl/exchange/window_slots_args.h"

__kernel void window_slots_outgoing(const __global int* row_ends, const __global int* sorted_slots, __global int* slots,
                                    const window_slots_outgoing_args given) {
  const window_slots_outgoing_args args = given;
  const int i = get_global_id(0);
  if (i >= args.count) return;
  const Owners owners = {args.experts, args.ranks, args.singles};
  row_ends += args.row_ends_first;
  const int rank = i / args.capacity;
  const int row = rows_before(row_ends, first_expert_of(owners, rank)) + i % args.capacity;
  const bool filled = row < rows_before(row_ends, first_expert_of(owners, rank + 1));
  slots[args.slots_first + i] = filled ? sorted_slots[args.sorted_slots_first + row] : -1;
}

__kernel void window_slots_incoming(const __global int* row_ends, __global int* ids,
                                    const window_slots_incoming_args given) {
  const window_slots_incoming_args args = given;
  const int i = get_global_id(0);
  if (i >= args.count) return;
  const Owners owners = {args.experts, args.ranks, args.singles};
  row_ends += args.row_ends_first + (long)(i / args.capacity) * args.experts;
  const int first = first_expert_of(owners, args.rank), end = first_expert_of(owners, args.rank + 1);
  const int row = rows_before(row_ends, first) + i % args.capacity;
  const bool filled = row < rows_before(row_ends, end);
  ids[args.ids_first + i] = filled ? expert_of_row(row_ends, args.experts, row) - first : -1;
}

__kernel void window_slots_return_rows(const __global int* row_ends, const __global int* slot_rows, __global int* rows,
                                       const window_slots_return_rows_args given) {
  const window_slots_return_rows_args args = given;
  const int slot = get_global_id(0);
  if (slot >= args.count) return;
  const Owners owners = {args.experts, args.ranks, args.singles};
  row_ends += args.row_ends_first;
  const int row = slot_rows[args.slot_rows_first + slot];
  int return_row = -1;
  if (row >= 0) {
    const int rank = rank_of_expert(owners, expert_of_row(row_ends, args.experts, row));
    const int in_slab = row - rows_before(row_ends, first_expert_of(owners, rank));
    if (in_slab < args.capacity) return_row = rank * args.capacity + in_slab;
  }
  rows[args.rows_first + slot] = return_row;
}

// Element i is slot i of `ids`.
__kernel void window_slots_token_return_rows(const __global int* ids, __global int* return_rows, __global int* fault,
                                             const window_slots_token_return_rows_args given) {
  const window_slots_token_return_rows_args args = given;
  const int i = get_global_id(0);
  if (i >= args.count) return;
  const Owners owners = {args.experts, args.ranks, 0};
  return_rows[args.return_rows_first + i] =
      return_row_of_slot(owners, args.first_expert, ids + args.ids_first, i, args.top_k, args.capacity, args.sums,
                         fault_word(fault, args.fault_first));
}

// Element i of recv_ends belongs to local expert i / ranks and source rank i % ranks.
__kernel void window_slots_counts(const __global int* row_ends, __global int* recv_ends, __global long* token_nums,
                                  const window_slots_counts_args given) {
  const window_slots_counts_args args = given;
  const int i = get_global_id(0);
  if (i >= args.count) return;
  const Owners owners = {args.experts, args.ranks, args.singles};
  const int first = first_expert_of(owners, args.rank), expert = first + i / args.ranks, source = i % args.ranks;
  int before = 0, mine = 0;
  for (int r = 0; r < args.ranks; ++r) {
    const __global int* ends = row_ends + args.row_ends_first + (long)r * args.experts;
    before += rows_before(ends, expert) - rows_before(ends, first);
    if (r <= source) mine += ends[expert] - rows_before(ends, expert);
  }
  recv_ends[args.recv_ends_first + i] = before + mine;
  if (source == args.ranks - 1)
    token_nums[args.token_nums_first + i / args.ranks] = args.cumulative ? before + mine : mine;
}

// The triple {source rank, token, column} of each row.
__kernel void window_slots_sources(const __global int* row_ends, const __global int* sorted_slots,
                                   const __global int* slots, __global int* triples,
                                   const window_slots_sources_args given) {
  const window_slots_sources_args args = given;
  const int row = get_global_id(0);
  if (row >= args.count || row >= row_ends[args.row_ends_first + args.experts - 1]) return;
  const int there = sorted_slots[args.sorted_slots_first + row], place = there / args.each;
  const int slot = slots[args.slots_first + place] / args.divisor * args.each + there % args.each;
  triples += args.triples_first + 3 * (long)row;
  triples[0] = place / args.capacity;
  triples[1] = slot / args.columns;
  triples[2] = slot % args.columns;
}

// Element i of `ids` belongs to token i / groups and group i % groups.
__kernel void window_slots_reached_groups(const __global int* owners, __global int* ids,
                                          const window_slots_reached_groups_args given) {
  const window_slots_reached_groups_args args = given;
  const int i = get_global_id(0);
  if (i >= args.count) return;
  const int token = i / args.groups, group = i % args.groups;
  owners += args.owners_first + (long)token * args.columns;
  int id = -1;
  for (int c = 0; c < args.columns; ++c) {
    const int owner = owners[c];
    if (owner >= args.first_owner && (owner - args.first_owner) / args.owners_each == group)
      id = group * args.slabs + token / args.slab_tokens;
  }
  ids[args.ids_first + i] = id;
}

// The inverse of window_slots_sources: the slot of rank i / capacity that the triple of the row at place i names.
// -1: there is no row; -2: the triple is missing or names another rank.
__kernel void window_slots_source_slots(const __global int* rows, const __global int* triples, __global int* slots,
                                        const window_slots_source_slots_args given) {
  const window_slots_source_slots_args args = given;
  const int i = get_global_id(0);
  if (i >= args.count) return;
  const int row = rows[args.rows_first + i];
  int slot = row < 0 ? -1 : -2;
  if (row >= 0 && row < args.triple_count) {
    triples += args.triples_first + 3 * (long)row;
    if (triples[0] == i / args.capacity) slot = (int)((uint)triples[1] * (uint)args.columns + (uint)triples[2]);
  }
  slots[args.slots_first + i] = slot;
}

// The token to whose sum the row at place i belongs, numbered over the ranks with the same index on all servers; -1 if
// there is none.
__kernel void window_slots_destination_tokens(const __global int* rows, const __global int* triples,
                                              __global int* tokens, const window_slots_destination_tokens_args given) {
  const window_slots_destination_tokens_args args = given;
  const int i = get_global_id(0);
  if (i >= args.count) return;
  const int row = rows[args.rows_first + i], rank = i / args.capacity;
  int token = -1;
  if (row >= 0 && row < args.triple_count) {
    triples += args.triples_first + 3 * (long)row;
    if (triples[0] == rank && triples[1] >= 0 && triples[1] < args.tokens_each)
      token = rank / args.ranks_per_server * args.tokens_each + triples[1];
  }
  tokens[args.tokens_first + i] = token;
}

// The number of earlier slots with the same expert; 0 for a slot without an expert.
__kernel void window_slots_positions_in_expert(const __global int* row_ends, const __global int* slot_rows,
                                               __global int* positions,
                                               const window_slots_positions_in_expert_args given) {
  const window_slots_positions_in_expert_args args = given;
  const int i = get_global_id(0);
  if (i >= args.count) return;
  row_ends += args.row_ends_first;
  const int row = slot_rows[args.slot_rows_first + i / args.top_k * args.columns + i % args.top_k];
  positions[args.positions_first + i] =
      row < 0 ? 0 : row - rows_before(row_ends, expert_of_row(row_ends, args.experts, row));
}
