// Small operations on vectors of indices. One work-item per element.
#include "kernels_cl/common/fault.clh"
#include "kernels_cl/rows/index_vectors_args.h"

__kernel void index_vectors_narrow(const __global void* from, const __global int* row_ends, __global int* to,
                                   __global int* fault, const index_vectors_narrow_args given) {
  const index_vectors_narrow_args args = given;
  const int i = get_global_id(0);
  if (i >= args.count) return;
  to += args.to_first;
  if (row_ends && i >= row_ends[args.row_ends_first + args.experts - 1]) {
    to[i] = args.otherwise;
    return;
  }
  const long value =
      args.wide ? ((const __global long*)from)[args.from_first + i] : ((const __global int*)from)[args.from_first + i];
  const int cut = convert_int_sat(value);
  const bool inside = cut >= args.low && cut < args.high;
  to[i] = inside ? cut : args.otherwise;  // after the load: `to` may be `from`
  if (!inside) set_fault(fault_word(fault, args.fault_first), INDEX_OUT_OF_RANGE, i, cut);
}

__kernel void index_vectors_column_order(__global int* out, const index_vectors_column_order_args given) {
  const index_vectors_column_order_args args = given;
  const int i = get_global_id(0);
  if (i < args.count) out[args.out_first + i] = i % args.top_k * args.tokens + i / args.top_k;
}

__kernel void index_vectors_sorted_routing(const __global int* sorted_slots, const __global int* ids,
                                           const __global int* row_idx, __global int* source_row,
                                           __global int* expanded_row_idx, __global int* expanded_expert_idx,
                                           __global int* fault, const index_vectors_sorted_routing_args given) {
  const index_vectors_sorted_routing_args args = given;
  const int row = get_global_id(0);
  if (row >= args.count) return;
  const int slot = sorted_slots[args.sorted_slots_first + row];
  const int place = row_idx[args.row_idx_first + slot];
  const bool right = place >= 0 && place < args.count;
  source_row[args.source_row_first + row] = right ? place % args.tokens : -1;
  expanded_expert_idx[args.expanded_expert_idx_first + row] = ids[args.ids_first + slot];
  if (right)
    expanded_row_idx[args.expanded_row_idx_first + place] = row;
  else
    set_fault(fault_word(fault, args.fault_first), INDEX_OUT_OF_RANGE, slot, place);
}

__kernel void index_vectors_histogram(const __global void* keys, __global int* counts,
                                      const index_vectors_histogram_args given) {
  const index_vectors_histogram_args args = given;
  const int i = get_global_id(0);
  if (i >= args.count) return;
  const long key =
      args.wide ? ((const __global long*)keys)[args.keys_first + i] : ((const __global int*)keys)[args.keys_first + i];
  if (key >= 0 && key < args.bins) atomic_inc(counts + args.counts_first + key);
}

__kernel void index_vectors_key_counts(const __global int* keys, __global long* counts,
                                       const index_vectors_key_counts_args given) {
  const index_vectors_key_counts_args args = given;
  const int key = get_global_id(0);
  if (key >= args.count) return;
  keys += args.keys_first;
  long found = 0;
  for (int i = 0; i < args.key_count; ++i) found += keys[i] == key;
  counts[args.counts_first + key] += found;
}

__kernel void index_vectors_group_of_row(const __global int* row_ends, __global int* groups,
                                         const index_vectors_group_of_row_args given) {
  const index_vectors_group_of_row_args args = given;
  const int row = get_global_id(0);
  if (row >= args.count) return;
  row_ends += args.row_ends_first;
  int low = 0, high = args.group_count;  // the first group whose end is past the row is in [low, high]
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (row_ends[middle] > row)
      high = middle;
    else
      low = middle + 1;
  }
  groups[args.groups_first + row] = low < args.group_count ? low % args.modulus : -1;
}

__kernel void index_vectors_key_ends(const __global int* keys, const __global int* order, __global int* ends,
                                     const index_vectors_key_ends_args given) {
  const index_vectors_key_ends_args args = given;
  const int key = get_global_id(0);
  if (key >= args.count) return;
  keys += args.keys_first;
  if (order) order += args.order_first;
  int low = 0, high = args.key_count;  // the first place with a larger key is in [low, high]
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (keys[order ? order[middle] : middle] > key)
      high = middle;
    else
      low = middle + 1;
  }
  ends[args.ends_first + key] = low;
}

__kernel void index_vectors_widen(const __global int* from, __global long* to, const index_vectors_widen_args given) {
  const index_vectors_widen_args args = given;
  const int i = get_global_id(0);
  if (i < args.count) to[args.to_first + i] = from[args.from_first + i];
}

__kernel void index_vectors_row_counts(const __global int* row_ends, __global void* counts,
                                       const index_vectors_row_counts_args given) {
  const index_vectors_row_counts_args args = given;
  const int i = get_global_id(0);
  if (i >= args.count) return;
  row_ends += args.row_ends_first;
  const int rows = row_ends[i] - (i == 0 ? 0 : row_ends[i - 1]);
  if (args.wide) {
    __global long* const count = (__global long*)counts + args.counts_first + i;
    *count = rows + (args.add ? *count : 0);
  } else {
    __global int* const count = (__global int*)counts + args.counts_first + i;
    *count = rows + (args.add ? *count : 0);
  }
}

__kernel void index_vectors_valid_rows(const __global int* row_ends, __global int* slots,
                                       const index_vectors_valid_rows_args given) {
  const index_vectors_valid_rows_args args = given;
  const int row = get_global_id(0);
  if (row >= args.count) return;
  row_ends += args.row_ends_first;
  bool valid;
  if (args.rows_per_expert == 0) {
    valid = row < row_ends[args.experts - 1];
  } else {
    const int expert = row / args.rows_per_expert;
    valid = row % args.rows_per_expert < row_ends[expert] - (expert == 0 ? 0 : row_ends[expert - 1]);
  }
  slots[args.slots_first + row] = valid ? row : -1;
}

__kernel void index_vectors_expect(const __global int* got, const __global int* expected, __global int* fault,
                                   const index_vectors_expect_args given) {
  const index_vectors_expect_args args = given;
  const int i = get_global_id(0);
  if (i < args.count && got[args.got_first + i] != expected[args.expected_first + i])
    set_fault(fault_word(fault, args.fault_first), OTHER_CALL, i, got[args.got_first + i]);
}
