// From tokens to sorted slots in one launch. The first `choosers` work-groups choose experts and sort the slots. The
// other work-groups are helpers.
//
// With -DROUTES=1 helpers compute parts of the logits. The choosers wait for the parts, then take the tokens in turn.
// The first chooser sorts all slots.
//
// With -DCHUNKS=1 each chooser has a chunk of the tokens, a token for each team at a time. It sorts the slots of its
// chunk.
//
// With neither of them one work-group chooses, a token for each team (one token after the other if it is one team), and
// sorts.
//
// -DQUANTIZES=1: helpers quantize the tokens. -DFEW_TOKENS=1: see sort_few_tokens.
#include "kernels_cl/common/divisor.clh"
#include "kernels_cl/fused/grid_barrier.clh"
#include "kernels_cl/fused/route_tokens_args.h"
#include "kernels_cl/routing/choose_experts.clh"
#include "kernels_cl/routing/sort_chunks.clh"
#if QUANTIZES
#include "kernels_cl/fused/row_codes.clh"
#endif
#if ROUTES
#include "kernels_cl/fused/router.clh"
#endif

#if ROUTES || CHUNKS
// Gives NaN to the weights of every `step`-th token from `first` on, so that what could not be computed does not look
// like a result.
INLINE void lose_weights(gating_top_k_args rule, __global STORAGE(WEIGHT_DTYPE)* weights, int first, int step,
                         int end) {
  FOR_EACH_BY_LANES (i, ((end - 1 - first) / step + 1) * TOP_K) {
    const int token = first + i / TOP_K * step;
    OF(store, WEIGHT_DTYPE)(NAN, weights, rule.weights_first + token * rule.weights_stride + i % TOP_K);
  }
}
#endif

#if CHUNKS
// Sorts the slots of this chooser's chunk, with the other choosers. If one of them does not come in time, the slots
// have row 0, and the first chooser leaves no rows to the experts.
// @return  whether all of them came
INLINE bool sort_chunk(expert_sort_args p, SortTensors t, Chunk c, GridBarrier* grid, SortMemory m) {
  count_chunk(p, t, c, m);
  // The rows of a chunk that never comes hold these slots, so that nobody reads past the tokens.
  FOR_EACH_BY_LANES (i, c.slots) t.sorted_slots[c.begin + i] = c.begin + i;
  leave_word(grid, c.number);
  const bool complete = await_words(grid, 0, c.count);
  if (complete) {
    place_chunk(p, t, c, m);
  } else {
    FOR_EACH_BY_LANES (i, t.slot_rows ? c.slots : 0) t.slot_rows[c.begin + i] = 0;
    FOR_EACH_BY_LANES (e, c.number == 0 ? p.experts : 0) {
      if (t.row_ends) t.row_ends[e] = 0;
      if (t.counts) t.counts[e] = 0;
    }
  }
  report_late(grid, t.fault);
  return complete;
}
#endif

// x, q and scale are used with -DQUANTIZES=1, the router's operands with -DROUTES=1, table with -DCHUNKS=1, group_words
// with either.
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void route_tokens(
    const __global void* router_x, const __global void* router_weights, const __global void* router_bias,
    __global float* parts, __global int* table, __global ulong* group_words, __global STORAGE(LOGITS_DTYPE)* logits,
    const __global STORAGE(BIAS_DTYPE)* selection_bias, const __global uchar* finished, __global int* ids,
    __global STORAGE(WEIGHT_DTYPE)* weights, __global float* scores, const __global int* order, __global int* row_ends,
    __global int* counts, __global int* sorted_slots, __global int* slot_rows, __global int* fault,
    const __global void* x, __global void* q, __global void* scale, __local ulong* words, __local int* counters,
    const route_tokens_args given) {
  const route_tokens_args args = given;
  __local float scratch[LANES];
  __local ulong best_scratch[LANES];
  __local int sort_scratch[SORT_SCRATCH];
  const gating_top_k_args rule = known_rule(args.gating);
  const int group = get_group_id(0), choosers = args.choosers, helper = group - choosers;
  const int helpers = (int)get_num_groups(0) - choosers;
  const bool chooses = helper < 0;
#if ROUTES || CHUNKS
  __local int late;
  GridBarrier grid = grid_barrier_of(group_words, args.grid, &late);
  ++grid.stamp;
#endif
#if ROUTES
  __local float sums[SUMS_BYTES / 4] __attribute__((aligned(16)));
  router_args of_router = args.router;
  of_router.n = CHOICES;
  const Router router = router_of(router_x, router_weights, router_bias, parts, of_router);
  if (!chooses) {
    multiply_router(router, helper, helpers, sums);
    leave_word(&grid, helper);
  }
#endif
#if QUANTIZES
  const Numbers numbers = {(const __global STORAGE(X_DTYPE)*)x + args.x_first, args.x_stride, 0,
                           chooses ? 0 : args.tokens, args.width};
  const RowCodes codes = {(__global STORAGE(Q_DTYPE)*)q + args.q_first,
                          scale ? (__global STORAGE(SCALE_DTYPE)*)scale + args.scale_first : 0, args.q_stride,
                          args.scale_stride};
  // Shares are numbered from the last helper: the last helpers, which have no part of the logits, come first.
  quantize_numbers(numbers, codes, known_rules(args.rules), helpers - 1 - helper, helpers, sort_scratch);
#endif
  if (!chooses) return;

  const Scratch of_group = {scratch, best_scratch, words};
  const TeamMemory memory = team_memory(of_group, rule);
  const RoutedTokens tokens = {logits, selection_bias, finished, ids, weights, scores};
#if ROUTES
  bool complete = await_words(&grid, 0, helpers);
  for (int token = group; token < args.tokens; token += choosers) {
    if (complete) add_parts(router, token, logits + rule.logits_first + token * rule.logits_stride, sums);
    choose_experts(rule, tokens, token, team_number() == 0, memory);
  }
  if (choosers > 1) {
    const int words_of_choosers = helpers + helpers % 2;
    leave_word(&grid, words_of_choosers + group);
    if (group == 0) complete = await_words(&grid, words_of_choosers, choosers) && complete;
  }
  memory_barrier();
  if (!complete) lose_weights(rule, weights, group, group == 0 ? 1 : choosers, args.tokens);
  if (group != 0) return;
  report_late(&grid, fault_word(fault, args.sort.fault_first));
#else
#if CHUNKS
  const Chunk chunk = chunk_of(args.sort, table, group, choosers);
  const int begin = chunk.begin / TOP_K, end = (chunk.begin + chunk.slots) / TOP_K;
#else
  const int begin = 0, end = args.tokens;
#endif
  for (int first = begin; first < end; first += TEAMS) {
    const int own = first + team_number(), token = min(own, end - 1);
    choose_experts(rule, tokens, token, own == token, memory);
  }
  memory_barrier();  // other lanes read the ids
#endif
  const SortTensors tensors = sort_tensors(args.sort, ids, order, row_ends, counts, sorted_slots, slot_rows, fault);
#if CHUNKS
  const SortMemory of_sort = sort_memory(counters, sort_scratch, args.sort.experts);
  if (!sort_chunk(args.sort, tensors, chunk, &grid, of_sort)) lose_weights(rule, weights, begin, 1, end);
#elif FEW_TOKENS
  __local uint2* const few_tokens = (__local uint2*)counters;
  const SortMemory of_sort = sort_memory(counters + 2 * args.sort.experts, sort_scratch, args.sort.experts);
  sort_few_tokens(args.sort, tensors, TOP_K, few_tokens, of_sort);
#else
  const SortMemory of_sort = sort_memory(counters, sort_scratch, args.sort.experts);
  sort_slots(args.sort, tensors, of_sort);
#endif
}
