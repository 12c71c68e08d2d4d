// Rows straight into the windows of other ranks, by address, and the signals that say they are there.
#include "kernels_cl/lib/expert_owners.clh"
#include "kernels_cl/lib/fault.clh"
#include "kernels_cl/lib/peer.clh"

#define WINDOW_ARGS                                                                                               \
  const __global long *windows, ulong windows_first, __global int *counter, ulong counter_first, int ranks,      \
      int rank, int capacity, int step, ulong ends_at, ulong codes_at, ulong scale_at, int row_bytes, int row_unit, \
      int scale_bytes, int scale_unit

// All work-items of a group copy `bytes`; `unit` of them at once, which divides them and both addresses.
inline void copy_bytes(__global uchar* to, const __global uchar* from, int bytes, int unit) {
  const int lane = get_local_id(0);
  if (unit == 16) {
    // Four loads under way before the first store.
    const int count = bytes / 16;
    __global uint4* const target = (__global uint4*)to;
    const __global uint4* const source = (const __global uint4*)from;
    for (int i = lane; i < count; i += 4 * LANES) {
      const bool second = i + LANES < count, third = i + 2 * LANES < count, fourth = i + 3 * LANES < count;
      const uint4 a = source[i];
      uint4 b = a, c = a, d = a;
      if (second) b = source[i + LANES];
      if (third) c = source[i + 2 * LANES];
      if (fourth) d = source[i + 3 * LANES];
      target[i] = a;
      if (second) target[i + LANES] = b;
      if (third) target[i + 2 * LANES] = c;
      if (fourth) target[i + 3 * LANES] = d;
    }
  } else if (unit == 4) {
    for (int i = lane; i < bytes / 4; i += LANES) ((__global uint*)to)[i] = ((const __global uint*)from)[i];
  } else {
    for (int i = lane; i < bytes; i += LANES) to[i] = from[i];
  }
}

inline __global uchar* window_of(const __global long* windows, int rank) { return (__global uchar*)windows[rank]; }

// The last group that comes here signals to all ranks that everything of this launch is there.
inline void signal_ranks(const __global long* windows, __global int* counter, int ranks, int rank, int step,
                         __local int* last) {
  const int lane = get_local_id(0);
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  if (lane == 0) {
    fence_of_peers();
    *last = atomic_inc((volatile __global int*)counter) == (int)get_num_groups(0) - 1;
    if (*last) atomic_xchg((volatile __global int*)counter, 0);  // of the next launch
    fence_of_peers();
  }
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  if (!*last) return;
  for (int to = lane; to < ranks; to += LANES) store_signal((__global int*)window_of(windows, to) + rank, step);
}

// Row j of the slots sorted by expert goes to the owner of its expert, into this rank's slab there; the row ends go to
// everybody.
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void window_put_dispatch(
    const __global int* row_ends, ulong row_ends_first, const __global int* sorted_slots, ulong sorted_first,
    const __global uchar* codes, ulong codes_first, const __global uchar* scale, ulong scale_first, int experts,
    int divisor, WINDOW_ARGS) {
  __local int begins[MOST_RANKS + 1], last;
  const int lane = get_local_id(0), group = get_group_id(0), groups = get_num_groups(0);
  const Owners owners = {experts, ranks, 0};
  row_ends += row_ends_first;
  sorted_slots += sorted_first;
  windows += windows_first;
  for (int r = lane; r <= ranks; r += LANES) begins[r] = rows_before(row_ends, first_expert_of(owners, r));
  barrier(CLK_LOCAL_MEM_FENCE);
  const int count = begins[ranks];
  int to = 0;
  for (int row = group; row < count; row += groups) {
    while (row >= begins[to + 1]) ++to;
    const int in_slab = row - begins[to];
    if (in_slab >= capacity) continue;
    const ulong place = (ulong)rank * capacity + in_slab, token = sorted_slots[row] / divisor;
    __global uchar* const window = window_of(windows, to);
    copy_bytes(window + codes_at + place * row_bytes, codes + codes_first + token * row_bytes, row_bytes, row_unit);
    if (scale_bytes != 0)
      copy_bytes(window + scale_at + place * scale_bytes, scale + scale_first + token * scale_bytes, scale_bytes,
                 scale_unit);
  }
  for (int peer = group; peer < ranks; peer += groups)
    copy_bytes(window_of(windows, peer) + ends_at + (ulong)rank * experts * 4, (const __global uchar*)row_ends, experts * 4,
               4);
  signal_ranks(windows, counter + counter_first, ranks, rank, step, &last);
}

// Row j of the received rows in order goes back to where it stood: to the rank of its slab, into this rank's slab there.
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void window_put_combine(
    const __global int* row_ends, ulong row_ends_first, const __global int* sorted_slots, ulong sorted_first,
    const __global uchar* codes, ulong codes_first, const __global uchar* scale, ulong scale_first, int experts,
    WINDOW_ARGS) {
  __local int last;
  const int group = get_group_id(0), groups = get_num_groups(0);
  windows += windows_first;
  const int count = capacity == 0 ? 0 : row_ends[row_ends_first + experts - 1];
  for (int row = group; row < count; row += groups) {
    const int stood = sorted_slots[sorted_first + row];
    const ulong place = (ulong)rank * capacity + stood % capacity;
    __global uchar* const window = window_of(windows, stood / capacity);
    copy_bytes(window + codes_at + place * row_bytes, codes + codes_first + (ulong)row * row_bytes, row_bytes, row_unit);
    if (scale_bytes != 0)
      copy_bytes(window + scale_at + place * scale_bytes, scale + scale_first + (ulong)row * scale_bytes, scale_bytes,
                 scale_unit);
  }
  signal_ranks(windows, counter + counter_first, ranks, rank, step, &last);
}

// Steps wrap around; a rank is at most one ahead.
inline bool has_come(const __global int* signal, int step) { return (int)((uint)load_signal(signal) - (uint)step) >= 0; }

// Until every rank has signalled this step.
__kernel void window_put_wait(const __global int* signals, ulong signals_first, __global int* late, ulong late_first,
                              __global int* fault, ulong fault_first, int ranks, int step, ulong patience) {
  const int rank = get_global_id(0);
  if (rank >= ranks) return;
  bool come = false;
  for (ulong looks = 0; looks < patience && !come; ++looks) come = has_come(signals + signals_first + rank, step);
  if (come) return;
  set_fault(late + late_first, PEER_LATE, rank, step);
  if (fault) set_fault(fault + fault_first, PEER_LATE, rank, step);
}

__kernel void window_put_address(__global uchar* memory, ulong memory_first, __global long* windows, ulong windows_first,
                                 int rank) {
  windows[windows_first + rank] = (long)(memory + memory_first);
}
