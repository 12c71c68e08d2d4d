// Few tokens from logits to sorted slots in one launch. The first work-group chooses experts, a token for each team
// (one after the other where it is one team), and sorts the slots; the teams of the others take a group of a token's
// columns each.
#include "kernels_cl/routing/choose_experts.clh"
#include "kernels_cl/common/divisor.clh"
#include "kernels_cl/routing/route_tokens_args.h"
#include "kernels_cl/routing/sort_slots.clh"
#if QUANTIZES
#include "kernels_cl/quantize/quantize_group.clh"
#endif

// All work-groups pass all barriers: what is another's to do is nothing to be done.
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void route_tokens(
    const __global STORAGE(LOGITS_DTYPE)* logits, const __global STORAGE(BIAS_DTYPE)* selection_bias,
    const __global uchar* finished, __global int* ids, __global STORAGE(WEIGHT_DTYPE)* weights, __global float* scores,
    const __global int* order, __global int* row_ends, __global int* counts, __global int* sorted_slots,
    __global int* slot_rows, __global int* fault,
#if QUANTIZES
    const __global STORAGE(X_DTYPE)* x, __global STORAGE(Q_DTYPE)* q, __global STORAGE(SCALE_DTYPE)* scale,
#endif
    __local ulong* words, __local int* counters, const route_tokens_args given) {
  const route_tokens_args args = given;
  const bool routes = get_group_id(0) == 0;
  __local float scratch[LANES];
  __local ulong best_scratch[LANES];
  __local int sort_scratch[SORT_SCRATCH];
  const Scratch of_group = {scratch, best_scratch, words};
  const TeamMemory memory = team_memory(of_group, args.gating);
  const RoutedTokens tokens = {logits, selection_bias, finished, ids, weights, scores};
  for (int first = 0; first < (routes ? args.tokens : 0); first += TEAMS) {
    const int own = first + team_number(), token = min(own, args.tokens - 1);
    choose_experts(args.gating, tokens, token, own == token, memory);
  }
#if LANES > 1
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);  // the ids are read by other lanes
#endif
  expert_sort_args sort = args.sort;
  if (!routes) sort.slots = sort.experts = 0;
  sort_slots(sort, sort_tensors(sort, ids, order, row_ends, counts, sorted_slots, slot_rows, fault),
             sort_memory(counters, sort_scratch, sort.experts));
#if QUANTIZES
  const int columns = DIVISOR(args.group), of_row = (args.width - 1) / columns + 1;
  const int team = ((int)get_group_id(0) - 1) * TEAMS + team_number();
  const bool has_columns = !routes && team < args.tokens * of_row;
  const int row = has_columns ? team / of_row : 0, begin = has_columns ? team % of_row * columns : 0;
  const Group of_columns = {x + args.x_first + row * args.x_stride + begin,
                            q + args.q_first + row * args.q_stride + begin,
                            has_columns ? min(args.width - begin, columns) : 0,
                            {scale ? scale + args.scale_first + row * args.scale_stride + begin / columns : scale, 0}};
  quantize_group(of_columns, known_rules(args.rules), sort_scratch);
#endif
}
