// Experts of a product take turns in the few slots of device memory. With -DSLOTS, -DEXPERTS (upper limits) and
// -DITEMS: the kernel by which one work-group of ITEMS assigns slots. Else the kernel that copies experts into slots.
#include "kernels_cl/routing/expert_slots_args.h"

#ifdef SLOTS
#define NEVER INT_MAX

// counters: hits, misses, passes, prefetched experts, hits on those. fetches: their number, then (expert, slot) pairs.
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void expert_slots_claim(
    const __global int* row_ends, __global int* slots, __global int* holders, __global int* priorities,
    __global int* fetches, __global long* counters, __global int* awaited, const expert_slots_claim_args given) {
  const expert_slots_claim_args args = given;
  __local int keys[SLOTS], order[SLOTS];
  __local uchar used[EXPERTS], missing[EXPERTS];
  const int item = get_local_id(0);
  row_ends += args.row_ends_first + args.first_expert, slots += args.slots_first + args.first_expert;
  holders += args.holders_first + args.first_slot, priorities += args.priorities_first + args.first_expert;
  fetches += args.fetches_first, counters += args.counters_first;
  awaited += args.awaited_first + args.first_slot;
  const int pass = (int)counters[2] + args.new_pass, policy = args.foreseen ? SLOTS_STATIC : args.policy;
  const int before_first = args.first_expert > 0 ? row_ends[-1] : 0;
  for (int e = item; e < args.experts; e += ITEMS) {
    used[e] = row_ends[e] > (e > 0 ? row_ends[e - 1] : before_first);
    missing[e] = used[e] && !(slots[e] >= args.first_slot && slots[e] < args.first_slot + args.slot_count);
    if (policy == SLOTS_LRU && used[e]) priorities[e] = pass;
    if (policy == SLOTS_LEAST_STALE) priorities[e] = as_int(as_float(priorities[e]) * args.fading + used[e]);
  }
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  // `order` lists the slots in the order in which they are given away. Slots of experts in use are not given away.
  for (int s = item; s < SLOTS; s += ITEMS) {
    const int holder = s < args.slot_count ? holders[s] : -1, e = holder - args.first_expert;
    const int in_use = e >= 0 && e < args.experts && used[e];
    order[s] = -1;
    keys[s] = s >= args.slot_count || in_use ? NEVER : holder < 0 ? -1 : priorities[e];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int s = item; s < SLOTS; s += ITEMS) {
    int sooner = 0;
    for (int other = 0; other < SLOTS; ++other)
      sooner += keys[other] < keys[s] || (keys[other] == keys[s] && other < s);
    if (keys[s] != NEVER) order[sooner] = s;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int e = item; e < args.experts; e += ITEMS) {
    if (!missing[e]) continue;
    int number = 0;
    for (int other = 0; other < e; ++other) number += missing[other];
    const int slot = number < SLOTS ? order[number] : -1;
    if (slot < 0) continue;  // more experts with rows than slots
    const int holder = holders[slot];
    if (holder >= 0) slots[holder - args.first_expert] = -1;
    if (slots[e] >= 0) holders[slots[e] - args.first_slot] = -1;  // its slot in another part becomes free
    slots[e] = args.first_slot + slot, holders[slot] = args.first_expert + e, awaited[slot] = args.foreseen;
    fetches[1 + 2 * number] = args.first_expert + e, fetches[2 + 2 * number] = slots[e];
  }
  if (item == 0) {
    int hits = 0, misses = 0, free = 0, expected = 0;
    for (int e = 0; e < args.experts; ++e) {
      misses += missing[e];
      if (!used[e] || missing[e]) continue;
      ++hits;
      if (args.foreseen) continue;
      const int slot = slots[e] - args.first_slot;
      expected += awaited[slot], awaited[slot] = 0;
    }
    for (int s = 0; s < SLOTS; ++s) free += keys[s] != NEVER;
    fetches[0] = min(misses, free);
    if (args.foreseen)
      counters[3] += fetches[0];
    else
      counters[0] += hits, counters[1] += misses, counters[2] = pass, counters[4] += expected;
  }
}
#else
// Dimension 1 is the number of the fetch; the work-items of dimension 0 share its copy. -DRUNS=1, best for CPUs: a
// work-item copies a run of units. Else neighbouring work-items copy neighbouring units.
__kernel void expert_slots_fetch(const __global UNIT* from, __global UNIT* to, const __global int* fetches,
                                 const expert_slots_fetch_args given) {
  const expert_slots_fetch_args args = given;
  const int number = get_global_id(1);
  fetches += args.fetches_first;
  if (number >= fetches[0]) return;
  from += args.from_first + fetches[1 + 2 * number] * args.units;
  to += args.to_first + fetches[2 + 2 * number] * args.units;
#if RUNS
  const long run = (args.units + get_global_size(0) - 1) / get_global_size(0), first = get_global_id(0) * run;
  for (long i = first; i < min(first + run, args.units); ++i) to[i] = from[i];
#else
  for (long i = get_global_id(0); i < args.units; i += get_global_size(0)) to[i] = from[i];
#endif
}
#endif
