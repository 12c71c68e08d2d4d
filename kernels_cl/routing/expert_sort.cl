// Stable counting sort of slots by expert. Few slots are one chunk, which one kernel sorts. Many slots are divided into
// one chunk per work-group. Then one kernel writes a table of slots per chunk and expert, and another scatters by it.
//
// A sort by wide keys takes several passes. In each a digit of the key is the expert, and `order` the result so far.
#include "kernels_cl/routing/sort_chunks.clh"

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void expert_sort_one_chunk(
    const __global int* ids, const __global int* order, __global int* row_ends, __global int* counts,
    __global int* sorted_slots, __global int* slot_rows, __global int* fault, __local int* counters,
    const expert_sort_args given) {
  const expert_sort_args args = given;
  __local int scratch[SORT_SCRATCH];
  const SortTensors tensors = sort_tensors(args, ids, order, row_ends, counts, sorted_slots, slot_rows, fault);
  sort_slots(args, tensors, sort_memory(counters, scratch, args.experts));
}

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void expert_sort_histogram(const __global int* ids,
                                                                                       const __global int* order,
                                                                                       __global int* table,
                                                                                       __local int* counters,
                                                                                       const expert_sort_args given) {
  const expert_sort_args args = given;
  __local int scratch[SORT_SCRATCH];
  const SortTensors tensors = sort_tensors(args, ids, order, 0, 0, 0, 0, 0);
  const Chunk chunk = chunk_of(args, table, get_group_id(0), get_num_groups(0));
  count_chunk(args, tensors, chunk, sort_memory(counters, scratch, args.experts));
}

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void expert_sort_scatter(
    const __global int* ids, const __global int* order, __global int* row_ends, __global int* counts,
    __global int* sorted_slots, __global int* slot_rows, __global int* fault, __global int* table,
    __local int* counters, const expert_sort_args given) {
  const expert_sort_args args = given;
  __local int scratch[SORT_SCRATCH];
  const SortMemory memory = sort_memory(counters, scratch, args.experts);
  const SortTensors tensors = sort_tensors(args, ids, order, row_ends, counts, sorted_slots, slot_rows, fault);
  const Chunk chunk = chunk_of(args, table, get_group_id(0), get_num_groups(0));
#if TEAMS > 1
  count_slots(args, tensors, chunk.begin, chunk.slots, memory);
#endif
  place_chunk(args, tensors, chunk, memory);
}
