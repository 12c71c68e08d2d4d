// Few tokens from logits to sorted slots in one launch. The first work-group chooses experts, a token for each team (one after
// the other where it is one team), and sorts the slots; the teams of the others take a group of a token's columns each.
#include "kernels_cl/routing/choose_experts.clh"
#include "kernels_cl/common/divisor.clh"
#include "kernels_cl/routing/sort_slots.clh"
#if QUANTIZES
#include "kernels_cl/quantize/quantize_group.clh"
#endif

// All work-groups pass all barriers: what is another's to do is nothing to be done.
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void route_tokens(
    GATING_ARGS, __local ulong* words, int tokens, SLOTS_ARGS, SORTED_ARGS
#if QUANTIZES
    , const __global STORAGE(X_DTYPE) * x, ulong x_first, __global STORAGE(Q_DTYPE) * q, ulong q_first,
    __global STORAGE(SCALE_DTYPE) * scale, ulong scale_first, long x_stride, long q_stride, long scale_stride, int width,
    int group, RULES_ARGS
#endif
) {
  const bool routes = get_group_id(0) == 0;
  __local float scratch[LANES];
  __local ulong best_scratch[LANES];
  SORT_MEMORY(sort_memory);
  const Scratch of_group = {scratch, best_scratch, words};
  const TeamMemory memory = team_memory(of_group, team_words, all_experts, top_k);
  const Rule router = GATING_RULE;
  for (int first = 0; first < (routes ? tokens : 0); first += TEAMS) {
    const int own = first + TEAM_FIRST / TEAM, token = min(own, tokens - 1);
    choose_experts(router, GATING_TOKEN(token), GATING_CHOICE(token), own == token, memory);
  }
#if LANES > 1
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);  // the ids are read by other lanes
#endif
  Problem p = SLOTS;
  if (!routes) p.slots = p.experts = 0;
  const Sorted out = SORTED;
  sort_slots(p, out, sort_memory);
#if QUANTIZES
  const Rules rules = RULES;
  const int columns = DIVISOR(group), of_row = (width - 1) / columns + 1;
  const int team = ((int)get_group_id(0) - 1) * TEAMS + TEAM_FIRST / TEAM;
  const bool has_columns = !routes && team < tokens * of_row;
  const int row = has_columns ? team / of_row : 0, begin = has_columns ? team % of_row * columns : 0;
  const Group of_columns = {x + x_first + row * x_stride + begin, q + q_first + row * q_stride + begin,
                            has_columns ? min(width - begin, columns) : 0,
                            {scale ? scale + scale_first + row * scale_stride + begin / columns : scale, 0}};
  quantize_group(of_columns, rules, sort_memory.scratch);
#endif
}
