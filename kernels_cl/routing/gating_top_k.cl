// Expert gating. One work-group, of one team, a token.
#include "kernels_cl/routing/choose_experts.clh"

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void gating_top_k(GATING_ARGS,
                                                                              __local ulong* words) {
  __local float scratch[LANES];
  __local ulong best_scratch[LANES];
  const Scratch of_group = {scratch, best_scratch, words};
  const Rule rule = GATING_RULE;
  const long token = get_group_id(0);
  choose_experts(rule, GATING_TOKEN(token), GATING_CHOICE(token), true, team_memory(of_group, team_words, all_experts, top_k));
}
