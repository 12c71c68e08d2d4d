// A persistent kernel: the MoE layer of few tokens in one launch. All work-groups are resident together. Each of them
// does a part of every step; between two steps they meet at a grid barrier (grid_barrier.clh):
//   parts of the logits -> experts of a token, a work-group each -> activation of the first product -> second product
//   -> weighted sum of a token's rows
// -DQUANTIZES=1: the rows of both products are quantized first, the tokens in the step that chooses experts, the
// activation in a step of its own. Each work-group finds the order of the experts' rows for itself.
//
// Tokens and the router's weights are X_DTYPE. A program has one rule of choice, fixed when it is built
// (-DKNOWN_RULE=1). With one lane there are no barriers: PoCL 3.1 compiles the code after a loop with a barrier once
// more, for the case that the loop runs no step.
#include "kernels_cl/fused/expert_products.clh"
#include "kernels_cl/fused/fused_moe_args.h"
#include "kernels_cl/fused/grid_barrier.clh"
#include "kernels_cl/fused/router.clh"
#include "kernels_cl/routing/choose_experts.clh"

#ifndef QUANTIZES
#define QUANTIZES 0
#endif

#if QUANTIZES
#define X_IS_ANY 1
#include "kernels_cl/fused/row_codes.clh"
#endif

enum {
  // The steps use the same local memory in turn. Routing: the choice of experts and the order of their rows.
  ORDER_BYTES = ORDER_SCRATCH * 4,
  OF_ROUTING = ROUTING_BYTES > ORDER_BYTES ? ROUTING_BYTES : ORDER_BYTES,
  OF_PRODUCTS = STAGES_BYTES > ROUTER_SUMS_BYTES ? STAGES_BYTES : ROUTER_SUMS_BYTES,
  MEMORY_BYTES = OF_PRODUCTS > OF_ROUTING ? OF_PRODUCTS : OF_ROUTING
};

// Access to up to four columns, as by load_sums and store_sums.
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
  // Each phase copies the arguments anew, so that the arguments of a later phase occupy no registers here.
  const fused_moe_args args = given;
  __local uchar memory[MEMORY_BYTES] __attribute__((aligned(1024)));
#if WARP_GROUPS
  declare_sums();
#endif
  __local float sums[TILE_ROWS * SUMS_STRIDE];
  __local int late;
  __local OrderMemory order_memory;
  const Order row_order = order_in(&order_memory);
  const int group = get_group_id(0), work_groups = get_num_groups(0), lane = get_local_id(0);
  const int tokens = args.router.tokens, slots = tokens * TOP_K;
  GridBarrier grid = grid_barrier_of(words, args.grid, &late);

  rows += args.rows_first, activated += args.activated_first;
  router_args of_router = args.router;
  of_router.n = CHOICES;
  const Router router = router_of(x, router_weights, router_bias, parts, of_router);
  multiply_router(router, group, work_groups, (__local float*)memory);
  bool complete = meet(&grid);

  const fused_moe_args of_choice = given;
  __local ulong* const words_of_teams = (__local ulong*)memory + LANES;
  const Scratch of_group = {(__local float*)(words_of_teams + TEAMS * of_choice.gating.team_words),
                            (__local ulong*)memory, words_of_teams};
  const gating_top_k_args rule = known_rule(of_choice.gating);
  const TeamMemory choice_memory = team_memory(of_group, rule);
  const RoutedTokens routed = {logits, selection_bias, finished, ids, weights, scores};
  for (int token = group; token < (complete ? tokens : 0); token += work_groups) {
    add_parts(router, token, logits + rule.logits_first + token * rule.logits_stride, (__local float*)memory);
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
  // Both products, with the quantization of their rows, are one code: the second pass finds it in the instruction
  // cache.
#pragma unroll 1
  for (;;) {
    const bool is_first = product.activates;
#if QUANTIZES
    const int count = is_first ? tokens : row_order.ends[EXPERTS - 1];
    const Numbers numbers = {is_first ? (const __global void*)router.x : activated,
                             is_first ? of_router.x_stride : of_products.activated_stride, !is_first,
                             complete ? count : 0, product.with.k};
    const RowCodes codes = {(__global STORAGE(Q_DTYPE)*)product.rows.a,
                            (__global STORAGE(SCALE_DTYPE)*)product.rows.scale, product.rows.stride,
                            product.rows.scale_stride};
    // Shares are numbered from the last work-group: the first work-groups, which chose experts, come last.
    quantize_numbers(numbers, codes, known_rules(of_products.rules), work_groups - 1 - group, work_groups,
                     (__local int*)memory);
#endif
    Flow flow;
    if (!is_first) flow = begin_flow(&product, row_order, complete, memory);
    complete = meet(&grid) && complete;
    if (is_first) {
      find_order(ids + of_products.gating.ids_first, complete ? slots : 0, row_order, (__local int*)memory);
      flow = begin_flow(&product, row_order, complete, memory);
    }
    multiply_experts(&flow, &product, row_order, activation, complete, memory, sums);
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
        // A slot without an expert loads another row instead, so that there is no branch between the loads.
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
    // NaN, so that what could not be computed does not look like a result.
    if (!complete) sum = NAN;
    store_out(sum, out + of_sum.out_first + token * of_sum.out_stride, column, hidden - column);
  }
}
