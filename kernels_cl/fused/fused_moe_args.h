#pragma once
#include "kernels_cl/fused/grid_barrier_args.h"
#include "kernels_cl/fused/router_args.h"
#include "kernels_cl/quantize/quantize_rules.h"
#include "kernels_cl/routing/gating_top_k_args.h"

enum { MOST_FUSED_SLOTS = 2048 };

// How work-groups share a product's tiles. An expert has column_tiles tiles in each of `slices` slices of K, which have
// slice_steps stages each. A work-group's next tile is jump_experts experts and jump_columns column tiles further.
typedef struct {
  int column_tiles, slices, slice_steps, jump_experts, jump_columns;
} fused_cut;

// A product of the experts: n columns, `groups` scale groups of K, one vector of scales and of biases for each expert.
typedef struct {
  long a_first, a_scale_first, weights_first, group_scale_first, group_zero_first, scale_first, bias_first;
  long a_stride, a_scale_stride, scale_stride, scale_column_stride, bias_stride, bias_column_stride;
  int scale_dtype, bias_dtype, groups, n, k;
  fused_cut cut;
} fused_product;
KERNEL_ARGS(fused_product, 144);

// rules: used with -DQUANTIZES=1.
typedef struct {
  gating_top_k_args gating;
  router_args router;
  fused_product gate_up, down;
  grid_barrier_args grid;
  long activated_first, rows_first, shared_first, shared_gate_first, out_first, fault_first;
  long activated_stride, rows_stride, shared_stride, shared_gate_stride, out_stride;
  float alpha, limit, up_bias;
  int pad;
  quantize_rules rules;
} fused_moe_args;
KERNEL_ARGS(fused_moe_args, 680);
