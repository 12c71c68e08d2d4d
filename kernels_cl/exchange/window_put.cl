// Rows straight into the windows of other ranks, by address, and the signals that say they are there.
#include "kernels_cl/common/divisor.clh"
#include "kernels_cl/exchange/peer.clh"
#include "kernels_cl/exchange/slot_homes.clh"

#pragma OPENCL FP_CONTRACT OFF

#define WINDOW_ARGS                                                                                                 \
  const __global long *windows, ulong windows_first, __global int *late, ulong late_first, __global int *fault,     \
      ulong fault_first, int ranks, int rank, int capacity, int step, ulong patience, ulong codes_at,               \
      ulong scale_at, int row_bytes, int row_unit, int scale_bytes, int scale_unit, int parts

inline __global uchar* window_of(const __global long* windows, int rank) { return (__global uchar*)windows[rank]; }

// Takes the lowest rank out of a set of them.
inline int take_rank(ulong* set) {
  const int rank = popcount((*set & -*set) - 1);
  *set &= *set - 1;
  return rank;
}

// All work-items of a group copy `bytes` to the same place of several windows; `unit` of them at once, which divides
// them and all addresses.
inline void copy_to_ranks(const __global long* windows, ulong to_ranks, ulong at, const __global uchar* from, int bytes,
                          int unit) {
  const int lane = get_local_id(0);
  if (unit == 16) {
    // Four loads under way before the first store.
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
        __global uint4* const target = (__global uint4*)(window_of(windows, take_rank(&left)) + at);
        target[i] = a;
        if (second) target[i + LANES] = b;
        if (third) target[i + 2 * LANES] = c;
        if (fourth) target[i + 3 * LANES] = d;
      }
    }
    return;
  }
  for (ulong left = to_ranks; left != 0;) {
    __global uchar* const target = window_of(windows, take_rank(&left)) + at;
    if (unit == 4) {
      for (int i = lane; i < bytes / 4; i += LANES) ((__global uint*)target)[i] = ((const __global uint*)from)[i];
    } else {
      for (int i = lane; i < bytes; i += LANES) target[i] = from[i];
    }
  }
}

// One of `parts` of a row, and with the first of them its scales, to the same place of several windows.
inline void copy_row(const __global long* windows, ulong to_ranks, ulong place, ulong row, int part, int parts,
                     const __global uchar* codes, ulong codes_at, int row_bytes, int row_unit,
                     const __global uchar* scale, ulong scale_at, int scale_bytes, int scale_unit) {
  const int units = row_bytes / row_unit, each = (units + parts - 1) / parts;
  const int first = min(part * each, units) * row_unit, end = min((part + 1) * each, units) * row_unit;
  copy_to_ranks(windows, to_ranks, codes_at + place * row_bytes + first, codes + row * row_bytes + first, end - first,
                row_unit);
  if (part == 0 && scale_bytes != 0)
    copy_to_ranks(windows, to_ranks, scale_at + place * scale_bytes, scale + row * scale_bytes, scale_bytes,
                  scale_unit);
}

// Steps wrap around; a rank is at most one ahead.
inline bool has_come(const __global int* signal, int step) {
  return (int)((uint)load_signal(signal) - (uint)step * STEP_SIGNAL) >= 0;
}

// Every group says to all ranks that what it put is there; all of them together add STEP_SIGNAL to a signal, however many
// they are. The last one, which begins when all others have, waits for what the ranks put, where it may: a signal is
// looked at `patience` times.
inline void end_step(const __global long* windows, __global int* late, __global int* fault, int ranks, int rank, int step,
                     ulong patience) {
  const int group = get_group_id(0), groups = get_num_groups(0), lane = get_local_id(0);
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  if (lane == 0) {
    fence_of_peers();
    for (int to = 0; to < ranks; ++to)
      add_to_signal((__global int*)window_of(windows, to) + rank, group == 0 ? STEP_SIGNAL - (groups - 1) : 1);
  }
  if (group != groups - 1 || patience == 0) return;
  const __global int* const signals = (const __global int*)window_of(windows, rank);
  for (int from = lane; from < ranks; from += LANES) {
    bool come = from == rank;
    for (ulong looks = 0; looks < patience && !come; ++looks) come = has_come(signals + from, step);
    if (come) continue;
    set_fault(late, PEER_LATE, from, step);
    set_fault(fault, PEER_LATE, from, step);
  }
}

// Each token goes to every rank that has an expert of it, once, into this rank's slab there; ids and weights go to
// everybody, with -1 for tokens that this rank has not.
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void window_put_dispatch(
    const __global int* ids, ulong ids_first, const __global float* weights, ulong weights_first,
    const __global uchar* codes, ulong codes_first, const __global uchar* scale, ulong scale_first, __global int* homes,
    ulong homes_first, int tokens, int top_k, int first_expert, int experts, int sums, ulong ids_at, ulong weights_at,
    WINDOW_ARGS) {
  const int group = get_group_id(0), groups = get_num_groups(0), lane = get_local_id(0);
  const Owners owners = {experts, ranks, 0};
  windows += windows_first;
  ids += ids_first;
  codes += codes_first;
  scale += scale_first;
  homes += homes_first;
  if (fault) fault += fault_first;
  for (int i = group; i < tokens * parts; i += groups) {
    const int token = i / parts;
    ulong to_ranks = 0;
    for (int k = 0; k < top_k; ++k) {
      const int owner = rank_of_id(owners, first_expert, ids[token * top_k + k]);
      if (owner >= 0) to_ranks |= (ulong)1 << owner;
    }
    copy_row(windows, to_ranks, (ulong)rank * capacity + token, token, i % parts, parts, codes, codes_at, row_bytes,
             row_unit, scale, scale_at, scale_bytes, scale_unit);
  }
  const int slots = tokens * top_k, places = capacity * top_k;
  for (int slot = group * LANES + lane; slot < slots; slot += groups * LANES)
    homes[slot] = home_of_slot(owners, first_expert, ids, slot, top_k, capacity, sums, fault);
  for (int i = group * LANES + lane; i < ranks * places; i += groups * LANES) {
    const int to = (rank + 1 + i / places) % ranks, slot = i % places;
    const ulong place = (ulong)rank * places + slot;
    __global uchar* const window = window_of(windows, to);
    ((__global int*)(window + ids_at))[place] = slot < slots ? ids[slot] : -1;
    if (weights && slot < slots) ((__global float*)(window + weights_at))[place] = weights[weights_first + slot];
  }
  end_step(windows, late + late_first, fault, ranks, rank, step, patience);
}

// Rows of the received slots go back to the rank of their slab, into this rank's slab there.
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void window_put_combine(
    const __global int* slot_rows, ulong slot_rows_first, const __global uchar* codes, ulong codes_first,
    const __global uchar* scale, ulong scale_first, int top_k, WINDOW_ARGS) {
  const int group = get_group_id(0), groups = get_num_groups(0), slots = capacity * top_k;
  windows += windows_first;
  slot_rows += slot_rows_first;
  if (fault) fault += fault_first;
  // Neighbours go to different ranks, so that all links are busy.
  for (int i = group; i < ranks * slots * parts; i += groups) {
    const int home = (rank + 1 + i) % ranks, part = i / ranks % parts, slot = i / ranks / parts;
    const int row = slot_rows[home * slots + slot];
    if (row >= 0)
      copy_row(windows, (ulong)1 << home, (ulong)rank * slots + slot, row, part, parts, codes + codes_first, codes_at,
               row_bytes, row_unit, scale + scale_first, scale_at, scale_bytes, scale_unit);
  }
  end_step(windows, late + late_first, fault, ranks, rank, step, patience);
}

// target[i] = sum over k of weights[k] * rows[slot_rows[k]][i], k ascending, for vectors `first` to `end` of so many.
#define PUT_SUM(TYPE)                                                                                       \
  for (int i = first + lane; i < end; i += LANES) {                                                         \
    TYPE sum = 0.0f;                                                                                        \
    for (int k = 0; k < top_k; ++k)                                                                         \
      if (slots[k] >= 0)                                                                                    \
        sum += (weights ? weights[at * top_k + k] : 1.0f) * ((const __global TYPE*)rows)[(long)slots[k] * vectors + i]; \
    ((__global TYPE*)target)[i] = sum;                                                                      \
  }

inline bool any_row(const __global int* slots, int top_k) {
  for (int k = 0; k < top_k; ++k)
    if (slots[k] >= 0) return true;
  return false;
}

// Weighted sums of the received tokens' rows likewise, of those that have any.
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void window_put_sum(
    const __global int* slot_rows, ulong slot_rows_first, const __global float* weights, ulong weights_first,
    const __global float* rows, ulong rows_first, int top_k, WINDOW_ARGS) {
  const int group = get_group_id(0), groups = get_num_groups(0), lane = get_local_id(0);
  const int vectors = row_bytes / DIVISOR(row_unit), each = (vectors + parts - 1) / DIVISOR(parts);
  windows += windows_first;
  if (weights) weights += weights_first;
  rows += rows_first;
  if (fault) fault += fault_first;
  for (int i = group; i < ranks * capacity * parts; i += groups) {
    const int home = (rank + 1 + i) % ranks, part = i / ranks % parts, token = i / ranks / parts;
    const int at = home * capacity + token, first = part * each, end = min(first + each, vectors);
    const __global int* const slots = slot_rows + slot_rows_first + (long)at * top_k;
    if (!any_row(slots, top_k)) continue;
    __global uchar* const target = window_of(windows, home) + codes_at + ((ulong)rank * capacity + token) * row_bytes;
    if (row_unit == 16) {
      PUT_SUM(float4)
    } else {
      PUT_SUM(float)
    }
  }
  end_step(windows, late + late_first, fault, ranks, rank, step, patience);
}

__kernel void window_put_address(__global uchar* memory, ulong memory_first, __global long* windows, ulong windows_first,
                                 int rank) {
  windows[windows_first + rank] = (long)(memory + memory_first);
}
