// Stores rows directly into the windows of other ranks, by address, and signals that the rows are there.
#include "kernels_cl/common/divisor.clh"
#include "kernels_cl/exchange/peer.clh"
#include "kernels_cl/exchange/return_rows.clh"
#include "kernels_cl/exchange/window_put_args.h"

#pragma OPENCL FP_CONTRACT OFF

inline __global uchar* window_of(const __global long* addresses, int rank) { return (__global uchar*)addresses[rank]; }

// Removes the lowest rank from a bit set of ranks and returns it.
inline int take_rank(ulong* set) {
  const int rank = popcount((*set & -*set) - 1);
  *set &= *set - 1;
  return rank;
}

// All work-items of a work-group copy `bytes` bytes to the same place of several windows, `unit` bytes per access.
// `unit` divides `bytes` and all addresses.
inline void copy_to_ranks(const __global long* addresses, ulong to_ranks, ulong at, const __global uchar* from,
                          int bytes, int unit) {
  const int lane = get_local_id(0);
  if (unit == 16) {
    // Issues four loads before the first store.
    const int count = bytes / 16;
    const __global uint4* const source = (const __global uint4*)from;
    for (int i = lane; i < count; i += 4 * LANES) {
      const bool second = i + LANES < count, third = i + 2 * LANES < count, fourth = i + 3 * LANES < count;
      const uint4 a = source[i];
      uint4 b = a, c = a, d = a;
      if (second) b = source[i + LANES];
      if (third) c = source[i + 2 * LANES];
      if (fourth) d = source[i + 3 * LANES];
      for (ulong left = to_ranks; left != 0;) {
        __global uint4* const target = (__global uint4*)(window_of(addresses, take_rank(&left)) + at);
        target[i] = a;
        if (second) target[i + LANES] = b;
        if (third) target[i + 2 * LANES] = c;
        if (fourth) target[i + 3 * LANES] = d;
      }
    }
    return;
  }
  for (ulong left = to_ranks; left != 0;) {
    __global uchar* const target = window_of(addresses, take_rank(&left)) + at;
    if (unit == 4) {
      for (int i = lane; i < bytes / 4; i += LANES) ((__global uint*)target)[i] = ((const __global uint*)from)[i];
    } else {
      for (int i = lane; i < bytes; i += LANES) target[i] = from[i];
    }
  }
}

// Copies part `part` of a row to the same place of several windows. Part 0 also copies the row's scales.
inline void copy_row(const __global long* addresses, ulong to_ranks, ulong place, ulong row, int part,
                     const __global uchar* codes, const __global uchar* scale, const window_put_args* put) {
  const int units = put->row_bytes / put->row_unit, each = (units + put->parts - 1) / put->parts;
  const int first = min(part * each, units) * put->row_unit, end = min((part + 1) * each, units) * put->row_unit;
  copy_to_ranks(addresses, to_ranks, put->codes_at + place * put->row_bytes + first,
                codes + row * put->row_bytes + first, end - first, put->row_unit);
  if (part == 0 && put->scale_bytes != 0)
    copy_to_ranks(addresses, to_ranks, put->scale_at + place * put->scale_bytes, scale + row * put->scale_bytes,
                  put->scale_bytes, put->scale_unit);
}

// Whether a rank has signalled `step`. Signals wrap around, and a rank is at most one step ahead.
inline bool has_come(const __global int* signal, int step) {
  return (int)((uint)load_signal(signal) - (uint)step * STEP_SIGNAL) >= 0;
}

// Every work-group signals to all ranks that its rows are there. All groups together add STEP_SIGNAL to each signal,
// however many they are. Unless `patience` is 0, the last group, which begins when all others have begun, then waits
// for the signals of the other ranks. It polls a signal at most `patience` times, or once if a rank was late before,
// since the window is lost then.
inline void end_step(const __global long* addresses, __global int* late, __global int* fault,
                     const window_put_args* put) {
  const int group = get_group_id(0), groups = get_num_groups(0), lane = get_local_id(0);
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  if (lane == 0) {
    fence_of_peers();
    for (int to = 0; to < put->ranks; ++to)
      add_to_signal((__global int*)window_of(addresses, to) + put->rank, group == 0 ? STEP_SIGNAL - (groups - 1) : 1);
  }
  if (group != groups - 1 || put->patience == 0) return;
  const __global int* const signals = (const __global int*)window_of(addresses, put->rank);
  const ulong patience = late && *late != 0 ? 1 : put->patience;
  for (int from = lane; from < put->ranks; from += LANES) {
    bool come = from == put->rank;
    for (ulong looks = 0; looks < patience && !come; ++looks) come = has_come(signals + from, put->step);
    if (come) continue;
    set_fault(late, PEER_LATE, from, put->step);
    set_fault(fault, PEER_LATE, from, put->step);
  }
}

// Copies each token once to every rank that owns one of its experts, into this rank's slab there. Ids and weights go to
// all ranks; ids are -1 at places of the slab without a token.
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void window_put_dispatch(
    const __global int* ids, const __global float* weights, const __global uchar* codes, const __global uchar* scale,
    __global int* return_rows, const __global long* addresses, __global int* late, __global int* fault,
    const window_put_dispatch_args given) {
  const window_put_dispatch_args args = given;
  const int group = get_group_id(0), groups = get_num_groups(0), lane = get_local_id(0);
  const int ranks = args.put.ranks, rank = args.put.rank, top_k = args.put.top_k, parts = args.put.parts;
  const Owners owners = {args.experts, ranks, 0};
  addresses += args.put.addresses_first;
  ids += args.ids_first;
  codes += args.codes_first;
  scale += args.scale_first;
  return_rows += args.return_rows_first;
  late = fault_word(late, args.put.late_first);
  fault = fault_word(fault, args.put.fault_first);
  for (int i = group; i < args.tokens * parts; i += groups) {
    const int token = i / parts;
    ulong to_ranks = 0;
    for (int k = 0; k < top_k; ++k) {
      const int owner = rank_of_id(owners, args.first_expert, ids[token * top_k + k]);
      if (owner >= 0) to_ranks |= (ulong)1 << owner;
    }
    copy_row(addresses, to_ranks, (ulong)rank * args.put.capacity + token, token, i % parts, codes, scale, &args.put);
  }
  const int slots = args.tokens * top_k, places = args.put.capacity * top_k;
  for (int slot = group * LANES + lane; slot < slots; slot += groups * LANES)
    return_rows[slot] =
        return_row_of_slot(owners, args.first_expert, ids, slot, top_k, args.put.capacity, args.sums, fault);
  for (int i = group * LANES + lane; i < ranks * places; i += groups * LANES) {
    const int to = (rank + 1 + i / places) % ranks, slot = i % places;
    const ulong place = (ulong)rank * places + slot;
    __global uchar* const window = window_of(addresses, to);
    ((__global int*)(window + args.ids_at))[place] = slot < slots ? ids[slot] : -1;
    if (weights && slot < slots)
      ((__global float*)(window + args.weights_at))[place] = weights[args.weights_first + slot];
  }
  end_step(addresses, late, fault, &args.put);
}

inline bool any_row(const __global int* slot_rows, int top_k) {
  for (int k = 0; k < top_k; ++k)
    if (slot_rows[k] >= 0) return true;
  return false;
}

// Copies the rows of received slots back to the rank of their slab, into this rank's slab there. With of_tokens: copies
// one row of each received token that has any row here.
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void window_put_combine(
    const __global int* slot_rows, const __global uchar* codes, const __global uchar* scale,
    const __global long* addresses, __global int* late, __global int* fault, const window_put_combine_args given) {
  const window_put_combine_args args = given;
  const int group = get_group_id(0), groups = get_num_groups(0), top_k = args.put.top_k;
  const int slots = args.of_tokens ? args.put.capacity : args.put.capacity * top_k;
  const int ranks = args.put.ranks, rank = args.put.rank, parts = args.put.parts;
  addresses += args.put.addresses_first;
  slot_rows += args.slot_rows_first;
  codes += args.codes_first;
  scale += args.scale_first;
  late = fault_word(late, args.put.late_first);
  fault = fault_word(fault, args.put.fault_first);
  // Neighbouring work-groups write to different ranks, so that all links are busy.
  for (int i = group; i < ranks * slots * parts; i += groups) {
    const int to = (rank + 1 + i) % ranks, part = i / ranks % parts, slot = i / ranks / parts;
    const int at = to * slots + slot;
    const int row = !args.of_tokens ? slot_rows[at] : any_row(slot_rows + (long)at * top_k, top_k) ? at : -1;
    if (row >= 0) copy_row(addresses, (ulong)1 << to, (ulong)rank * slots + slot, row, part, codes, scale, &args.put);
  }
  end_step(addresses, late, fault, &args.put);
}

// target[i] = sum over k of weights[k] * rows[slot_rows[k]][i], k ascending, for vectors [first, end) of a row of
// `width` vectors; absent weights are 1.
#define PUT_SUM_OF(type)                                                                                        \
  inline void put_sum_##type(const __global int* slot_rows, const __global float* weights, int top_k,           \
                             const __global type* rows, int width, int first, int end, __global type* target) { \
    for (int i = first + (int)get_local_id(0); i < end; i += LANES) {                                           \
      type sum = 0.0f;                                                                                          \
      for (int k = 0; k < top_k; ++k)                                                                           \
        if (slot_rows[k] >= 0) sum += (weights ? weights[k] : 1.0f) * rows[(long)slot_rows[k] * width + i];     \
      target[i] = sum;                                                                                          \
    }                                                                                                           \
  }
PUT_SUM_OF(float)
PUT_SUM_OF(float4)

// Likewise stores the weighted sum of the rows of each received token that has any row here.
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void window_put_sum(
    const __global int* slot_rows, const __global float* weights, const __global float* rows,
    const __global long* addresses, __global int* late, __global int* fault, const window_put_sum_args given) {
  const window_put_sum_args args = given;
  const int group = get_group_id(0), groups = get_num_groups(0);
  const int ranks = args.put.ranks, rank = args.put.rank, top_k = args.put.top_k, parts = args.put.parts;
  const int vectors = args.put.row_bytes / DIVISOR(args.put.row_unit), each = (vectors + parts - 1) / DIVISOR(parts);
  addresses += args.put.addresses_first;
  slot_rows += args.slot_rows_first;
  if (weights) weights += args.weights_first;
  rows += args.rows_first;
  late = fault_word(late, args.put.late_first);
  fault = fault_word(fault, args.put.fault_first);
  for (int i = group; i < ranks * args.put.capacity * parts; i += groups) {
    const int to = (rank + 1 + i) % ranks, part = i / ranks % parts, token = i / ranks / parts;
    const long at = ((long)to * args.put.capacity + token) * top_k;
    if (!any_row(slot_rows + at, top_k)) continue;
    const int first = part * each, end = min(first + each, vectors);
    __global uchar* const target =
        window_of(addresses, to) + args.put.codes_at + ((ulong)rank * args.put.capacity + token) * args.put.row_bytes;
    const __global float* const of_token = weights ? weights + at : weights;
    if (args.put.row_unit == 16)
      put_sum_float4(slot_rows + at, of_token, top_k, (const __global float4*)rows, vectors, first, end,
                     (__global float4*)target);
    else
      put_sum_float(slot_rows + at, of_token, top_k, rows, vectors, first, end, (__global float*)target);
  }
  end_step(addresses, late, fault, &args.put);
}

__kernel void window_put_address(__global uchar* memory, __global long* addresses,
                                 const window_put_address_args given) {
  const window_put_address_args args = given;
  addresses[args.addresses_first + args.rank] = (long)(memory + args.memory_first);
}
