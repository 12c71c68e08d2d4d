// Rows straight into the windows of other ranks, by address, and the signals that say they are there.
#include "kernels_cl/lib/expert_owners.clh"
#include "kernels_cl/lib/fault.clh"
#include "kernels_cl/lib/peer.clh"

#define WINDOW_ARGS                                                                                                  \
  const __global long *windows, ulong windows_first, __global int *counter, ulong counter_first, __global int *late, \
      ulong late_first, __global int *fault, ulong fault_first, int ranks, int rank, int capacity, int step,         \
      ulong patience, ulong codes_at, ulong scale_at, int row_bytes, int row_unit, int scale_bytes, int scale_unit,  \
      int parts

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
inline bool has_come(const __global int* signal, int step) { return (int)((uint)load_signal(signal) - (uint)step) >= 0; }

// The last group that comes here signals to all ranks that everything of this launch is there, and waits for what they
// put, where it may: a signal is looked at `patience` times.
inline void end_step(const __global long* windows, __global int* counter, __global int* late, __global int* fault,
                     int ranks, int rank, int step, ulong patience, __local int* last) {
  const int lane = get_local_id(0);
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  if (lane == 0) {
    fence_of_peers();
    *last = atomic_inc((volatile __global int*)counter) == (int)get_num_groups(0) - 1;
    if (*last) {
      atomic_xchg((volatile __global int*)counter, 0);  // of the next launch
      fence_of_peers();
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  if (!*last) return;
  for (int to = lane; to < ranks; to += LANES) store_signal((__global int*)window_of(windows, to) + rank, step);
  if (patience == 0) return;
  const __global int* const signals = (const __global int*)window_of(windows, rank);
  for (int from = lane; from < ranks; from += LANES) {
    bool come = false;
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
    ulong homes_first, int tokens, int top_k, int first_expert, int experts, ulong ids_at, ulong weights_at,
    WINDOW_ARGS) {
  __local int last;
  const int group = get_group_id(0), groups = get_num_groups(0), lane = get_local_id(0);
  const Owners owners = {experts, ranks, 0};
  windows += windows_first;
  ids += ids_first;
  codes += codes_first;
  scale += scale_first;
  homes += homes_first;
  if (fault) fault += fault_first;
  for (int i = group; i < tokens * parts; i += groups) {
    const int token = i / parts, part = i % parts;
    ulong to_ranks = 0;
    for (int k = 0; k < top_k; ++k) {
      const int slot = token * top_k + k, id = ids[slot], owner = rank_of_id(owners, first_expert, id);
      const bool first = owner >= 0 && (to_ranks >> owner & 1) == 0;
      if (first) to_ranks |= (ulong)1 << owner;
      if (part != 0 || lane != 0) continue;
      homes[slot] = first ? owner * capacity + token : -1;
      if (id < -1 || id >= first_expert + experts) set_fault(fault, EXPERT_ID_OUT_OF_RANGE, slot, id);
    }
    copy_row(windows, to_ranks, (ulong)rank * capacity + token, token, part, parts, codes, codes_at, row_bytes,
             row_unit, scale, scale_at, scale_bytes, scale_unit);
  }
  const int slots = tokens * top_k, places = capacity * top_k;
  for (int i = group * LANES + lane; i < ranks * places; i += groups * LANES) {
    const int to = (rank + 1 + i / places) % ranks, slot = i % places;
    const ulong place = (ulong)rank * places + slot;
    __global uchar* const window = window_of(windows, to);
    ((__global int*)(window + ids_at))[place] = slot < slots ? ids[slot] : -1;
    if (weights && slot < slots) ((__global float*)(window + weights_at))[place] = weights[weights_first + slot];
  }
  end_step(windows, counter + counter_first, late + late_first, fault, ranks, rank, step, patience, &last);
}

// Sum i of the received tokens goes back to the rank of its slab, into this rank's slab there, if it has any row.
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void window_put_combine(
    const __global int* slot_rows, ulong slot_rows_first, const __global uchar* codes, ulong codes_first,
    const __global uchar* scale, ulong scale_first, int top_k, WINDOW_ARGS) {
  __local int last;
  const int group = get_group_id(0), groups = get_num_groups(0);
  windows += windows_first;
  slot_rows += slot_rows_first;
  if (fault) fault += fault_first;
  // Neighbours go to different ranks, so that all links are busy.
  for (int i = group; i < ranks * capacity * parts; i += groups) {
    const int home = (rank + 1 + i) % ranks, part = i / ranks % parts, token = i / ranks / parts;
    const int row = home * capacity + token;
    bool any = false;
    for (int k = 0; k < top_k && !any; ++k) any = slot_rows[row * top_k + k] >= 0;
    if (any)
      copy_row(windows, (ulong)1 << home, (ulong)rank * capacity + token, row, part, parts, codes + codes_first,
               codes_at, row_bytes, row_unit, scale + scale_first, scale_at, scale_bytes, scale_unit);
  }
  end_step(windows, counter + counter_first, late + late_first, fault, ranks, rank, step, patience, &last);
}

__kernel void window_put_address(__global uchar* memory, ulong memory_first, __global long* windows, ulong windows_first,
                                 int rank) {
  windows[windows_first + rank] = (long)(memory + memory_first);
}
