#pragma once
#include "kernels_cl/common/kernel_args.h"

// `count`: elements, one work-item each. Ranks own experts as expert_owners.clh says.
typedef struct {
  long row_ends_first, sorted_slots_first, slots_first;
  int count, experts, ranks, singles, capacity, pad;
} window_slots_outgoing_args;
KERNEL_ARGS(window_slots_outgoing_args, 48);

typedef struct {
  long row_ends_first, ids_first;
  int count, experts, ranks, singles, capacity, rank;
} window_slots_incoming_args;
KERNEL_ARGS(window_slots_incoming_args, 40);

typedef struct {
  long row_ends_first, slot_rows_first, rows_first;
  int count, experts, ranks, singles, capacity, pad;
} window_slots_return_rows_args;
KERNEL_ARGS(window_slots_return_rows_args, 48);

typedef struct {
  long ids_first, return_rows_first, fault_first;
  int count, top_k, first_expert, experts, ranks, capacity, sums, pad;
} window_slots_token_return_rows_args;
KERNEL_ARGS(window_slots_token_return_rows_args, 56);

typedef struct {
  long row_ends_first, recv_ends_first, token_nums_first;
  int count, experts, ranks, singles, rank, cumulative;
} window_slots_counts_args;
KERNEL_ARGS(window_slots_counts_args, 48);

typedef struct {
  long row_ends_first, sorted_slots_first, slots_first, triples_first;
  int count, experts, capacity, columns, each, divisor;
} window_slots_sources_args;
KERNEL_ARGS(window_slots_sources_args, 56);

typedef struct {
  long owners_first, ids_first;
  int count, columns, groups, first_owner, owners_each, slabs, slab_tokens, pad;
} window_slots_reached_groups_args;
KERNEL_ARGS(window_slots_reached_groups_args, 48);

typedef struct {
  long rows_first, triples_first, slots_first;
  int count, triple_count, capacity, columns;
} window_slots_source_slots_args;
KERNEL_ARGS(window_slots_source_slots_args, 40);

typedef struct {
  long rows_first, triples_first, tokens_first;
  int count, triple_count, capacity, ranks_per_server, tokens_each, pad;
} window_slots_destination_tokens_args;
KERNEL_ARGS(window_slots_destination_tokens_args, 48);

typedef struct {
  long row_ends_first, slot_rows_first, positions_first;
  int count, experts, columns, top_k;
} window_slots_positions_in_expert_args;
KERNEL_ARGS(window_slots_positions_in_expert_args, 40);
