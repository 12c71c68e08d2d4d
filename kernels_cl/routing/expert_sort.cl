// Stable counting sort of slots by expert. Few slots are one chunk, which one kernel sorts. Many slots are divided into
// one chunk per work-group. Then one kernel writes a table of slots per chunk and expert, and another scatters by it.
//
// A sort by wide keys takes several passes. In each a digit of the key is the expert, and `order` the result so far.
#include "kernels_cl/routing/sort_slots.clh"

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void expert_sort_one_chunk(
    const __global int* ids, const __global int* order, __global int* row_ends, __global int* counts,
    __global int* sorted_slots, __global int* slot_rows, __global int* fault, __local int* counters,
    const expert_sort_args given) {
  const expert_sort_args args = given;
  __local int scratch[SORT_SCRATCH];
  const SortTensors tensors = sort_tensors(args, ids, order, row_ends, counts, sorted_slots, slot_rows, fault);
  sort_slots(args, tensors, sort_memory(counters, scratch, args.experts));
}

// table: [chunks][experts] numbers of slots, then [chunks] flags of chunks with a wrong id.
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void expert_sort_histogram(const __global int* ids,
                                                                                       const __global int* order,
                                                                                       __global int* table,
                                                                                       __local int* counters,
                                                                                       const expert_sort_args given) {
  const expert_sort_args args = given;
  __local int scratch[SORT_SCRATCH];
  const SortMemory memory = sort_memory(counters, scratch, args.experts);
  const SortTensors tensors = sort_tensors(args, ids, order, 0, 0, 0, 0, 0);
  const int experts = args.experts, chunk = get_group_id(0), chunks = get_num_groups(0);
  const int begin = chunk * args.chunk_slots, count = min(args.slots - begin, args.chunk_slots);
  const bool wrong = count_slots(args, tensors, begin, count, memory);
  const bool some_are_wrong = min_over_group(wrong ? 0 : INT_MAX, memory.least) == 0;
  table += args.table_first;
  FOR_EACH_BY_LANES (e, experts) table[(long)chunk * experts + e] = memory.rows[e];
  if (get_local_id(0) == 0) table[(long)chunks * experts + chunk] = some_are_wrong;
}

// The first chunk with a slot in fault, INT_MAX if there is none. A fault is a wrong id, or a slot past the capacity of
// its expert.
inline int first_chunk_in_fault(expert_sort_args p, const __global int* table, int chunks, __local int* least) {
  int found = INT_MAX;
  FOR_EACH_BY_LANES (c, chunks) found = min(found, table[(long)chunks * p.experts + c] ? c : INT_MAX);
  FOR_EACH_BY_LANES (e, p.capacity > 0 && !p.may_drop ? p.experts : 0) {
    int sum = 0;
    for (int c = 0; c < chunks; ++c) {
      const int count = table[(long)c * p.experts + e];
      sum += count;
      if (count > 0 && sum > p.capacity) found = min(found, c);
    }
  }
  return min_over_group(found, least);
}
inline int slots_of_chunks(const __global int* table, int experts, int expert, int chunks) {
  int sum = 0;
#pragma unroll 8
  for (int c = 0; c < chunks; ++c) sum += table[(long)c * experts + expert];
  return sum;
}

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void expert_sort_scatter(
    const __global int* ids, const __global int* order, __global int* row_ends, __global int* counts,
    __global int* sorted_slots, __global int* slot_rows, __global int* fault, const __global int* table,
    __local int* counters, const expert_sort_args given) {
  const expert_sort_args args = given;
  __local int scratch[SORT_SCRATCH];
  const SortMemory memory = sort_memory(counters, scratch, args.experts);
  SortTensors tensors = sort_tensors(args, ids, order, row_ends, counts, sorted_slots, slot_rows, fault);
  const int experts = args.experts, chunk = get_group_id(0), chunks = get_num_groups(0);
  const int begin = chunk * args.chunk_slots, count = min(args.slots - begin, args.chunk_slots);
  table += args.table_first;
  if (chunk != 0) tensors.row_ends = tensors.counts = 0;  // one chunk writes them
#if TEAMS > 1
  count_slots(args, tensors, begin, count, memory);
#endif
  FOR_EACH_BY_LANES (e, experts) memory.rows[e] = slots_of_chunks(table, experts, e, chunks);
  group_barrier();
  counts_to_first_rows(args, tensors, memory);
  FOR_EACH_BY_LANES (e, experts) memory.rows[e] += slots_of_chunks(table, experts, e, chunk);
  group_barrier();
  const int fault_chunk = first_chunk_in_fault(args, table, chunks, memory.least);
  const int slot = min_over_group(place_slots(args, tensors, begin, count, memory), memory.least);
  if (chunk == fault_chunk) report(args, tensors, slot);
}
