#pragma once
#include "kernels_cl/common/kernel_args.h"

// `count`: elements, one work-item each.
typedef struct {
  long from_first, row_ends_first, to_first, fault_first;
  int count, wide, experts, low, high, otherwise;  // wide: `from` is i64
} index_vectors_narrow_args;
KERNEL_ARGS(index_vectors_narrow_args, 56);

typedef struct {
  long out_first;
  int count, tokens, top_k, pad;
} index_vectors_column_order_args;
KERNEL_ARGS(index_vectors_column_order_args, 24);

typedef struct {
  long sorted_slots_first, ids_first, row_idx_first, source_row_first, expanded_row_idx_first,
      expanded_expert_idx_first;
  long fault_first;
  int count, tokens;
} index_vectors_sorted_routing_args;
KERNEL_ARGS(index_vectors_sorted_routing_args, 64);

typedef struct {
  long keys_first, counts_first;
  int count, wide, bins, pad;  // wide: `keys` are i64
} index_vectors_histogram_args;
KERNEL_ARGS(index_vectors_histogram_args, 32);

typedef struct {
  long keys_first, counts_first;
  int count, key_count;
} index_vectors_key_counts_args;
KERNEL_ARGS(index_vectors_key_counts_args, 24);

typedef struct {
  long row_ends_first, groups_first;
  int count, group_count, modulus, pad;
} index_vectors_group_of_row_args;
KERNEL_ARGS(index_vectors_group_of_row_args, 32);

typedef struct {
  long keys_first, order_first, ends_first;
  int count, key_count;
} index_vectors_key_ends_args;
KERNEL_ARGS(index_vectors_key_ends_args, 32);

typedef struct {
  long from_first, to_first;
  int count, pad;
} index_vectors_widen_args;
KERNEL_ARGS(index_vectors_widen_args, 24);

typedef struct {
  long row_ends_first, counts_first;
  int count, wide, add, pad;  // wide: `counts` is i64
} index_vectors_row_counts_args;
KERNEL_ARGS(index_vectors_row_counts_args, 32);

typedef struct {
  long row_ends_first, slots_first;
  int count, experts, rows_per_expert, pad;
} index_vectors_valid_rows_args;
KERNEL_ARGS(index_vectors_valid_rows_args, 32);

typedef struct {
  long got_first, expected_first, fault_first;
  int count, pad;
} index_vectors_expect_args;
KERNEL_ARGS(index_vectors_expect_args, 32);
