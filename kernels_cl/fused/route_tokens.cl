// From few tokens to sorted slots in one launch. The first `choosers` work-groups choose experts, and the very first
// one also sorts the slots. The other work-groups are helpers.
//
// -DROUTES=1: helpers compute parts of the logits. The choosers wait for the parts, then take the tokens in turn.
// -DROUTES=0: one work-group chooses, a token for each team (one token after the other if it is one team).
// -DQUANTIZES=1: helpers quantize the tokens. -DFEW_TOKENS=1: see sort_few_tokens.
#include "kernels_cl/common/divisor.clh"
#include "kernels_cl/fused/grid_barrier.clh"
#include "kernels_cl/fused/route_tokens_args.h"
#include "kernels_cl/routing/choose_experts.clh"
#include "kernels_cl/routing/sort_slots.clh"
#if QUANTIZES
#include "kernels_cl/fused/row_codes.clh"
#endif
#if ROUTES
#include "kernels_cl/fused/router.clh"
#endif

// x, q and scale are used with -DQUANTIZES=1, the router's operands and group_words with -DROUTES=1.
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void route_tokens(
    const __global void* router_x, const __global void* router_weights, const __global void* router_bias,
    __global float* parts, __global ulong* group_words, __global STORAGE(LOGITS_DTYPE)* logits,
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
#if ROUTES
  __local float sums[SUMS_BYTES / 4] __attribute__((aligned(16)));
  __local int late;
  router_args of_router = args.router;
  of_router.n = CHOICES;
  const Router router = router_of(router_x, router_weights, router_bias, parts, of_router);
  GridBarrier grid = grid_barrier_of(group_words, args.grid, &late);
  ++grid.stamp;
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
  // NaN, so that what could not be computed does not look like a result.
  FOR_EACH_BY_LANES (i, complete ? 0 : args.tokens * TOP_K)
    if (group == 0 || i / TOP_K % choosers == group)
      OF(store, WEIGHT_DTYPE)(NAN, weights, rule.weights_first + i / TOP_K * rule.weights_stride + i % TOP_K);
  if (group != 0) return;
  report_late(&grid, fault_word(fault, args.sort.fault_first));
#else
  for (int first = 0; first < args.tokens; first += TEAMS) {
    const int own = first + team_number(), token = min(own, args.tokens - 1);
    choose_experts(rule, tokens, token, own == token, memory);
  }
  memory_barrier();  // other lanes read the ids
#endif
  const SortTensors tensors = sort_tensors(args.sort, ids, order, row_ends, counts, sorted_slots, slot_rows, fault);
#if FEW_TOKENS
  __local uint2* const few_tokens = (__local uint2*)counters;
  const SortMemory of_sort = sort_memory(counters + 2 * args.sort.experts, sort_scratch, args.sort.experts);
  sort_few_tokens(args.sort, tensors, TOP_K, few_tokens, of_sort);
#else
  const SortMemory of_sort = sort_memory(counters, sort_scratch, args.sort.experts);
  sort_slots(args.sort, tensors, of_sort);
#endif
}
