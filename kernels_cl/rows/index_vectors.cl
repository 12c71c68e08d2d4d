// Steps on vectors of indices: one work-item an element.
#include "kernels_cl/common/fault.clh"

#define AT(p, first) ((p) ? (p) + (first) : (p))

__kernel void index_vectors_narrow(const __global void* from, ulong from_first, const __global int* row_ends, ulong row_ends_first,
                                   __global int* to, ulong to_first, __global int* fault, ulong fault_first, int count,
                                   int wide, int experts, int low, int high, int otherwise) {
  const int i = get_global_id(0);
  if (i >= count) return;
  to += to_first;
  if (row_ends && i >= row_ends[row_ends_first + experts - 1]) {
    to[i] = otherwise;
    return;
  }
  const long value = wide ? ((const __global long*)from)[from_first + i] : ((const __global int*)from)[from_first + i];
  const int cut = convert_int_sat(value);
  const bool inside = cut >= low && cut < high;
  to[i] = inside ? cut : otherwise;  // only now: `to` may be `from`
  if (!inside) set_fault(AT(fault, fault_first), INDEX_OUT_OF_RANGE, i, cut);
}

__kernel void index_vectors_column_order(__global int* out, ulong out_first, int count, int tokens, int top_k) {
  const int i = get_global_id(0);
  if (i < count) out[out_first + i] = i % top_k * tokens + i / top_k;
}

__kernel void index_vectors_sorted_routing(const __global int* sorted_slots, ulong sorted_first, const __global int* ids,
                                           ulong ids_first, const __global int* row_idx, ulong row_idx_first,
                                           __global int* source_row, ulong source_first, __global int* expanded_row_idx,
                                           ulong expanded_first, __global int* expanded_expert_idx, ulong expert_first,
                                           __global int* fault, ulong fault_first, int count, int tokens) {
  const int row = get_global_id(0);
  if (row >= count) return;
  const int slot = sorted_slots[sorted_first + row];
  const int place = row_idx[row_idx_first + slot];
  const bool right = place >= 0 && place < count;
  source_row[source_first + row] = right ? place % tokens : -1;
  expanded_expert_idx[expert_first + row] = ids[ids_first + slot];
  if (right)
    expanded_row_idx[expanded_first + place] = row;
  else
    set_fault(AT(fault, fault_first), INDEX_OUT_OF_RANGE, slot, place);
}

__kernel void index_vectors_group_of_row(const __global int* row_ends, ulong row_ends_first, __global int* groups,
                                         ulong groups_first, int count, int group_count, int modulus) {
  const int row = get_global_id(0);
  if (row >= count) return;
  row_ends += row_ends_first;
  int low = 0, high = group_count;  // the first group whose end is past the row is in [low, high]
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (row_ends[middle] > row)
      high = middle;
    else
      low = middle + 1;
  }
  groups[groups_first + row] = low < group_count ? low % modulus : -1;
}

__kernel void index_vectors_key_ends(const __global int* keys, ulong keys_first, const __global int* order, ulong order_first,
                                     __global int* ends, ulong ends_first, int count, int key_count) {
  const int key = get_global_id(0);
  if (key >= count) return;
  keys += keys_first;
  order = AT(order, order_first);
  int low = 0, high = key_count;  // the first place with a larger key is in [low, high]
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (keys[order ? order[middle] : middle] > key)
      high = middle;
    else
      low = middle + 1;
  }
  ends[ends_first + key] = low;
}

__kernel void index_vectors_expect(const __global int* got, ulong got_first, const __global int* expected,
                                   ulong expected_first, __global int* fault, ulong fault_first, int count) {
  const int i = get_global_id(0);
  if (i < count && got[got_first + i] != expected[expected_first + i])
    set_fault(fault + fault_first, OTHER_CALL, i, got[got_first + i]);
}
