// Expert gating. One work-group, of one team, a token.
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
