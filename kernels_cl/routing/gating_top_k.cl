// Expert gating. One work-group per token; all its work-items are one team.
#include "kernels_cl/common/fault.clh"
#include "kernels_cl/routing/choose_experts.clh"

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void gating_top_k(
    const __global STORAGE(LOGITS_DTYPE)* logits, const __global STORAGE(BIAS_DTYPE)* selection_bias,
    const __global uchar* finished, __global int* ids, __global STORAGE(WEIGHT_DTYPE)* weights, __global float* scores,
    __local ulong* words, const gating_top_k_args given) {
  const gating_top_k_args args = given;
  __local float scratch[LANES];
  __local ulong best_scratch[LANES];
  const Scratch of_group = {scratch, best_scratch, words};
  const RoutedTokens tokens = {logits, selection_bias, finished, ids, weights, scores};
  choose_experts(args, tokens, get_group_id(0), true, team_memory(of_group, args));
}

// The same for tokens whose experts come from a table. An entry that is no expert has logit NaN, hence weight 0.
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void gating_top_k_by_table(
    const __global STORAGE(LOGITS_DTYPE)* logits, const __global uchar* finished, const __global int* experts,
    const __global void* token_ids, __global int* ids, __global STORAGE(WEIGHT_DTYPE)* weights, __global int* fault,
    __local ulong* words, const gating_by_table_args given) {
  const gating_by_table_args args = given;
  const gating_top_k_args rule = args.rule;
  __local float scratch[LANES];
  __local ulong best_scratch[LANES];
  const Scratch of_group = {scratch, best_scratch, words};
  const TeamMemory m = team_memory(of_group, rule);
  const int token = get_group_id(0);
  logits += rule.logits_first + token * rule.logits_stride;
  const long row = args.wide ? ((const __global long*)token_ids)[args.token_ids_first + token]
                             : ((const __global int*)token_ids)[args.token_ids_first + token];
  const bool known = row >= 0 && row < args.vocabulary;
  const bool is_finished = finished && finished[rule.finished_first + token];
  if (!known && team_lane() == 0)
    set_fault(fault_word(fault, args.fault_first), INDEX_OUT_OF_RANGE, token, convert_int_sat(row));
  const Score score = score_of(rule, logits, m.scratch);
  const int top_k = chosen_of(rule);
  ids += rule.ids_first + token * rule.ids_stride;
  weights += rule.weights_first + token * rule.weights_stride;
  for (int step = first_of_lane(); step < top_k; step += TEAM_STEP)
    for (int k = step; k < min(step + STEP, top_k); ++k) {
      const int expert = known ? experts[args.experts_first + row * top_k + k] : -1;
      const bool exists = expert >= 0 && expert < rule.experts;
      ids[k] = is_finished ? rule.finished_id : exists ? expert : -1;
      m.chosen[k] = exists ? OF(load, LOGITS_DTYPE)(logits, expert) : NAN;
    }
  store_weights(rule, score, weights, true, m);
  store_shared(rule, ids, weights, is_finished, true);
}
