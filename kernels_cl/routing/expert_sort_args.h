#pragma once
#include "kernels_cl/common/kernel_args.h"

// Ids outside [lowest_id, highest_id] are in fault. The expert of a slot is (id >> shift) & mask. Only experts
// [first_expert, first_expert + experts) take part. capacity: rows per expert; 0 in the standard layout.
typedef struct {
  long ids_first, order_first, row_ends_first, counts_first, sorted_slots_first, slot_rows_first, fault_first;
  long table_first;
  int slots, first_expert, experts, lowest_id, highest_id, shift, mask, capacity, may_drop, chunk_slots;
} expert_sort_args;
KERNEL_ARGS(expert_sort_args, 104);
