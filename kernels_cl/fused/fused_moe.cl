// The layer of few tokens in one launch. The work-groups are resident together and take each step together, a part of
// it each; between two steps they meet (grid_barrier.clh):
//   logits of slices of k -> experts of a token, a work-group each -> activation of the first product -> second product
//   -> weighted sum of a token's rows
// With -DQUANTIZES=1 the products' rows become codes first: the tokens while experts are chosen, the activation in a
// step of its own. Which rows the experts have every work-group finds out for itself.
//
// Tokens and the router's weights are X_DTYPE. -DCHOICES experts, of which -DTOP_K with shared ones a token has,
// -DSCORE_FUNCTION, -DSCORE_ORDER, -DCHOOSES_GROUPS: of the rule. So a program has no code of others, and is short:
// most instructions run once a launch, and then fetching one takes longer than what it does. With one lane there are no
// barriers: PoCL 3.1 compiles what follows a loop with a barrier once more for the loop of no steps.
#include "kernels_cl/common/divisor.clh"
#include "kernels_cl/fused/expert_products.clh"
#include "kernels_cl/fused/fused_moe_args.h"
#include "kernels_cl/fused/grid_barrier.clh"
#include "kernels_cl/routing/choose_experts.clh"

#ifndef QUANTIZES
#define QUANTIZES 0
#endif

enum {
  QUAD_LANES = LANES < QUADS ? LANES : QUADS,
  SLICE_LANES = LANES / QUAD_LANES,
  // The steps use the same memory in turn. Routing: choice of experts, and order of their rows.
  ORDER_BYTES = ORDER_SCRATCH * 4,
  LOGITS_BYTES = SLICE_LANES * TOKEN_BLOCK * PANEL * 4,
  OF_ROUTING = ROUTING_BYTES > ORDER_BYTES ? ROUTING_BYTES : ORDER_BYTES,
  OF_PRODUCTS = STAGES_BYTES > LOGITS_BYTES ? STAGES_BYTES : LOGITS_BYTES,
  MEMORY_BYTES = OF_PRODUCTS > OF_ROUTING ? OF_PRODUCTS : OF_ROUTING
};

typedef struct {
  const __global STORAGE(X_DTYPE)* weights;
  Vectors bias;
  int n, k;
} Router;

typedef struct {
  const __global STORAGE(X_DTYPE)* rows;
  long stride;
  int count;
} Tokens;

INLINE int slices_of(Router router) { return (router.k - 1) / ROUTER_SLICE_K + 1; }

// Sums of slices of k, in steps of SLICE_LANES that the lanes share. @param parts  Shape: [slices, T, E]
INLINE void multiply_router(Tokens x, Router router, __global float* parts, __local float* scratch) {
  const int lane = get_local_id(0) / QUAD_LANES;
  const int panels = (router.n - 1) / PANEL + 1, slices = slices_of(router), blocks = (x.count - 1) / TOKEN_BLOCK + 1;
  __local float4* const sums = (__local float4*)scratch;  // [SLICE_LANES][TOKEN_BLOCK][QUADS]
  for (int unit = get_group_id(0); unit < panels * slices * blocks; unit += get_num_groups(0)) {
    const int panel = unit % panels, slice = unit / panels % slices, first = unit / panels / slices * TOKEN_BLOCK;
    const __global STORAGE(X_DTYPE)* const weights = router.weights + (ulong)panel * router.k * PANEL;
    const int begin = slice * ROUTER_SLICE_K, end = min(begin + ROUTER_SLICE_K, router.k);
    group_barrier();  // the sums before were read
    for (int quad = get_local_id(0) % QUAD_LANES; quad < QUADS; quad += QUAD_LANES) {
      float4 sum[TOKEN_BLOCK];
#pragma unroll
      for (int t = 0; t < TOKEN_BLOCK; ++t) sum[t] = 0;
#if LANES > 1
#pragma unroll 4
#endif
      for (int i = begin + lane; i < end; i += SLICE_LANES) {
        const float4 weight = OF(panel4, X_DTYPE)(weights + (ulong)i * PANEL, quad * 4);
#pragma unroll
        for (int t = 0; t < TOKEN_BLOCK; ++t)
          sum[t] = mad((float4)(OF(load, X_DTYPE)(x.rows + min(first + t, x.count - 1) * x.stride, i)), weight, sum[t]);
      }
#pragma unroll
      for (int t = 0; t < TOKEN_BLOCK; ++t) sums[(lane * TOKEN_BLOCK + t) * QUADS + quad] = sum[t];
    }
    group_barrier();
    FOR_EACH_BY_LANES (item, TOKEN_BLOCK * PANEL) {
      const int token = first + item / PANEL, expert = panel * PANEL + item % PANEL;
      float total = 0;
      for (int l = 0; l < SLICE_LANES; ++l) total += scratch[l * TOKEN_BLOCK * PANEL + item];
      if (token < x.count && expert < router.n) parts[((ulong)slice * x.count + token) * router.n + expert] = total;
    }
  }
}

// A token's logits, from its parts. By the work-group.
INLINE void add_parts(const __global float* parts, Router router, int token, int tokens, __global float* logits) {
  const int slices = slices_of(router);
  const Vectors no_scale = {0};
  const Epilogue epilogue = epilogue_of(no_scale, router.bias, 0);
  FOR_EACH_BY_LANES (expert, router.n) {
    const __global float* part = parts + token * router.n + expert;
    float sum = 0;
#if LANES > 1
#pragma unroll 16
#endif
    for (int slice = 0; slice < slices; ++slice, part += tokens * router.n) sum += *part;
    logits[expert] = sum + column_bias(&epilogue, expert);
  }
  memory_barrier();
}

#if QUANTIZES
#define X_IS_ANY 1
#include "kernels_cl/quantize/quantize_group.clh"

// Rows of numbers, which are X_DTYPE or f32.
typedef struct {
  const __global void* x;
  long stride;
  int is_f32, count, width;
} Numbers;
INLINE Group group_of(Numbers of, __global STORAGE(A_DTYPE)* codes, __global STORAGE(A_SCALE_DTYPE)* scale,
                      fused_product to, int row, int begin, int columns, int scale_number) {
  const long at = row * of.stride + begin;
  const Group group = {
      of.is_f32 ? (const __global void*)((const __global float*)of.x + at)
                : (const __global void*)((const __global STORAGE(X_DTYPE)*)of.x + at),
      (__global STORAGE(Q_DTYPE)*)codes + to.a_first + row * to.a_stride + begin,
      columns,
      {(__global STORAGE(SCALE_DTYPE)*)scale + to.a_scale_first + row * to.a_scale_stride + scale_number, 0},
      of.is_f32};
  return group;
}
#if A_GROUP || LANES == 1
// Their codes, by teams of all work-groups; those that chose experts come last.
INLINE void quantize_numbers(Numbers of, __global STORAGE(A_DTYPE)* codes, __global STORAGE(A_SCALE_DTYPE)* scale,
                             fused_product to, Rules rules, __local int* scratch) {
  const int group = A_GROUP ? A_GROUP : DIVISOR(of.width), of_row = (of.width - 1) / group + 1,
            units = of.count * of_row;
  for (int first = ((int)get_num_groups(0) - 1 - (int)get_group_id(0)) * TEAMS; first < units;
       first += (int)get_num_groups(0) * TEAMS) {
    const int unit = first + team_number();
    const bool exists = unit < units;
    const int row = exists ? unit / of_row : 0, begin = exists ? unit % of_row * group : 0;
    quantize_group(group_of(of, codes, scale, to, row, begin, exists ? min(of.width - begin, group) : 0, begin / group),
                   rules, scratch);
  }
}
#else
INLINE int max_over_group(int value, __local int* scratch) {
  const int of_team = max_int_over_lanes(value, scratch);
  group_barrier();
  if (team_lane() == 0) scratch[team_number()] = of_team;
  group_barrier();
  int largest = scratch[0];
  for (int team = 1; team < TEAMS; ++team) largest = max(largest, scratch[team]);
  group_barrier();
  return largest;
}
// Their codes. A row has one scale and is long: each work-group that makes codes of a step of it looks for the largest
// of all. Those that chose experts come last.
INLINE void quantize_numbers(Numbers of, __global STORAGE(A_DTYPE)* codes, __global STORAGE(A_SCALE_DTYPE)* scale,
                             fused_product to, Rules rules, __local int* scratch) {
  const int of_row = (of.width - 1) / (TEAMS * STEP_COLUMNS) + 1, units = of.count * of_row;
  for (int unit = (int)get_num_groups(0) - 1 - (int)get_group_id(0); unit < units; unit += (int)get_num_groups(0)) {
    const Group row = group_of(of, codes, scale, to, unit / of_row, 0, of.width, 0);
    Largest largest = {0, 0};
#pragma unroll 2
    for (int i = team_number(); i * STEP_COLUMNS < of.width; i += TEAMS)
      largest = larger(largest, load_step(row, i, of.width), rules);
    const int bits = max_over_group(max_int_of_16(largest.all), scratch),
              negative = rules.rule == RULE_RANGE ? max_over_group(max_int_of_16(largest.negative), scratch) : 0;
    const Scale s = stored_scale(row, bits, negative, rules, unit % of_row == 0 && get_local_id(0) == 0);
    const int i = unit % of_row * TEAMS + team_number();
    if (i * STEP_COLUMNS < of.width) store_step(row, i, of.width, load_step(row, i, of.width), s, rules);
  }
}
#endif
#pragma OPENCL FP_CONTRACT ON
#endif

// Four columns, as load_sums and store_sums.
INLINE float4 load_shared(const __global STORAGE(SHARED_DTYPE)* p, ulong i, int left) {
  return OUT_FOURS ? OF(load4, SHARED_DTYPE)(p, i) : OF(load_upto4, SHARED_DTYPE)(p, i, left);
}
INLINE void store_out(float4 x, __global STORAGE(SUM_DTYPE)* p, ulong i, int left) {
  if (OUT_FOURS)
    OF(store4, SUM_DTYPE)(x, p, i);
  else
    OF(store_upto4, SUM_DTYPE)(x, p, i, left);
}

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void fused_moe(
    const __global STORAGE(X_DTYPE)* x, const __global STORAGE(X_DTYPE)* router_weights,
    const __global void* router_bias, __global float* parts, __global float* logits,
    const __global STORAGE(BIAS_DTYPE)* selection_bias, const __global uchar* finished, __global int* ids,
    __global STORAGE(WEIGHT_DTYPE)* weights, __global float* scores, __global STORAGE(A_DTYPE)* gate_up_a,
    __global STORAGE(A_SCALE_DTYPE)* gate_up_a_scale, const __global STORAGE(W_DTYPE)* gate_up_weights,
    const __global STORAGE(W_SCALE_DTYPE)* gate_up_group_scale, const __global short* gate_up_group_zero,
    const __global void* gate_up_scale, const __global void* gate_up_bias, __global STORAGE(OUT_DTYPE)* activated,
    __global STORAGE(A_DTYPE)* down_a, __global STORAGE(A_SCALE_DTYPE)* down_a_scale,
    const __global STORAGE(W_DTYPE)* down_weights, const __global STORAGE(W_SCALE_DTYPE)* down_group_scale,
    const __global short* down_group_zero, const __global void* down_scale, const __global void* down_bias,
    __global float* rows, const __global STORAGE(SHARED_DTYPE)* shared, const __global float* shared_gate,
    __global STORAGE(SUM_DTYPE)* out, __global ulong* words, __global int* fault, const fused_moe_args given) {
  // Each phase has a copy of its own: what it reads takes no registers before.
  const fused_moe_args args = given;
  __local uchar memory[MEMORY_BYTES] __attribute__((aligned(128)));
  __local float sums[TILE_ROWS * SUMS_STRIDE];
  __local int late, sources[TILE_ROWS];
  __local OrderMemory order_memory;
  const Order row_order = order_in(&order_memory);
  const int group = get_group_id(0), work_groups = get_num_groups(0), lane = get_local_id(0);
  const int tokens = args.tokens, slots = tokens * TOP_K;
  GridBarrier grid = grid_barrier_of(words + args.words_first, args.stamp, args.patience, &late);

  rows += args.rows_first, parts += args.parts_first, activated += args.activated_first;
  const Tokens all_tokens = {x + args.x_first, args.x_stride, tokens};
  const Router router = {router_weights + args.router_weights_first,
                         {router_bias, args.router_bias_first, 0, args.router_bias_stride, args.router_bias_dtype},
                         CHOICES,
                         args.gate_up.k};
  multiply_router(all_tokens, router, parts, (__local float*)memory);
  bool complete = meet(&grid);

  const fused_moe_args of_choice = given;
  __local ulong* const words_of_teams = (__local ulong*)memory + LANES;
  const Scratch of_group = {(__local float*)(words_of_teams + TEAMS * of_choice.gating.team_words),
                            (__local ulong*)memory, words_of_teams};
  gating_top_k_args rule = of_choice.gating;
  rule.experts = CHOICES, rule.top_k = TOP_K, rule.shared = EXPERTS - CHOICES;
  rule.score = SCORE_FUNCTION, rule.order = SCORE_ORDER;
  if (!CHOOSES_GROUPS) rule.groups = rule.kept_groups = 0;
  const TeamMemory choice_memory = team_memory(of_group, rule);
  const RoutedTokens routed = {logits, selection_bias, finished, ids, weights, scores};
  for (int token = group; token < (complete ? tokens : 0); token += work_groups) {
    add_parts(parts, router, token, tokens, logits + rule.logits_first + token * rule.logits_stride);
    choose_experts(rule, routed, token, team_first() == 0, choice_memory);
  }

  const fused_moe_args of_products = given;
  const Activation activation = {of_products.alpha, of_products.limit, of_products.up_bias};
  const Product second = {
      rows_of(of_products.down, down_a, down_a_scale, 0),
      matrices_of(of_products.down, down_weights, down_group_scale, down_group_zero, down_scale, down_bias),
      of_products.down.cut,
      0,
      slots,
      rows,
      of_products.rows_stride};
  Product product = {rows_of(of_products.gate_up, gate_up_a, gate_up_a_scale, 1),
                     matrices_of(of_products.gate_up, gate_up_weights, gate_up_group_scale, gate_up_group_zero,
                                 gate_up_scale, gate_up_bias),
                     of_products.gate_up.cut,
                     1,
                     0,
                     activated,
                     of_products.activated_stride};
  // One code for both products and their rows: the second ones find it in the instruction cache.
#pragma unroll 1
  for (;;) {
    const bool is_first = product.activates;
#if QUANTIZES
    const int count = is_first ? tokens : row_order.ends[EXPERTS - 1];
    const Numbers numbers = {is_first ? (const __global void*)all_tokens.rows : activated,
                             is_first ? of_products.x_stride : of_products.activated_stride, !is_first,
                             complete ? count : 0, product.with.k};
    quantize_numbers(numbers, is_first ? gate_up_a : down_a, is_first ? gate_up_a_scale : down_a_scale,
                     is_first ? of_products.gate_up : of_products.down, known_rules(of_products.rules),
                     (__local int*)memory);
#endif
    Flow flow;
    if (!is_first) flow = begin_flow(&product, row_order, complete, memory);
    complete = meet(&grid) && complete;
    if (is_first) {
      find_order(ids + of_products.gating.ids_first, complete ? slots : 0, row_order, (__local int*)memory);
      flow = begin_flow(&product, row_order, complete, memory);
    }
    multiply_experts(&flow, &product, row_order, activation, complete, memory, sources, sums);
    if (!is_first || QUANTIZES) complete = meet(&grid) && complete;
    if (!is_first) break;
    product = second;
  }
  report_late(&grid, fault_word(fault, args.fault_first));

  const fused_moe_args of_sum = given;
  const int hidden = of_sum.down.n, columns = (hidden - 1) / (4 * LANES) + 1;
  for (int unit = group; unit < tokens * columns; unit += work_groups) {
    const int token = unit / columns, column = (unit % columns * LANES + lane) * 4;
    if (column >= hidden) continue;
    float4 sum = 0.0f;
    for (int slice = 0; slice < of_sum.down.cut.slices; ++slice) {
      const __global float* const of_slice = rows + slice * slots * of_sum.rows_stride;
#if LANES > 1
#pragma unroll 8
#endif
      for (int k = 0; k < (complete ? TOP_K : 0); ++k) {
        const int row = row_order.rows[token * TOP_K + k];
        const float weight =
            OF(load, WEIGHT_DTYPE)(weights, of_sum.gating.weights_first + token * of_sum.gating.weights_stride + k);
        // Of a slot without an expert another row, which leaves no branch between the loads.
        const float4 value = load_sums(of_slice + max(row, 0) * of_sum.rows_stride, column, hidden - column);
        sum += row >= 0 ? weight * value : 0.0f;
      }
    }
    if (shared) {
      const float gate =
          shared_gate ? 1.0f / (1.0f + exp(-shared_gate[of_sum.shared_gate_first + token * of_sum.shared_gate_stride]))
                      : 1.0f;
      sum += gate * load_shared(shared + of_sum.shared_first + token * of_sum.shared_stride, column, hidden - column);
    }
    // What could not be computed shall not look like a result.
    if (!complete) sum = NAN;
    store_out(sum, out + of_sum.out_first + token * of_sum.out_stride, column, hidden - column);
  }
}
