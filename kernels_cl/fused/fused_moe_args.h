#pragma once
#include "kernels_cl/quantize/quantize_rules.h"
#include "kernels_cl/routing/gating_top_k_args.h"

enum {
  MOST_FUSED_SLOTS = 2048,
  MEETINGS = 16,  // of the work-groups of a launch, at most
  // Of K, whose sums are parts of the logits: the same everywhere, so that results are.
  ROUTER_SLICE_K = 64
};

// How the work-groups share a product's tiles: an expert has column_tiles, by `slices` of K of slice_steps stages each.
// A work-group's next tile stands jump_experts and jump_columns further.
typedef struct {
  int column_tiles, slices, slice_steps, jump_experts, jump_columns;
} fused_cut;

// A product of the experts: n columns, `groups` of K. Scales and biases have a vector for each expert.
typedef struct {
  long a_first, a_scale_first, weights_first, group_scale_first, group_zero_first, scale_first, bias_first;
  long a_stride, a_scale_stride, scale_stride, scale_column_stride, bias_stride, bias_column_stride;
  int scale_dtype, bias_dtype, groups, n, k;
  fused_cut cut;
} fused_product;
KERNEL_ARGS(fused_product, 144);

// rules: of -DQUANTIZES=1.
typedef struct {
  gating_top_k_args gating;
  fused_product gate_up, down;
  long x_first, router_weights_first, router_bias_first, parts_first, activated_first, rows_first, shared_first;
  long shared_gate_first, out_first, words_first, fault_first;
  long x_stride, router_bias_stride, activated_stride, rows_stride, shared_stride, shared_gate_stride, out_stride;
  long stamp;
  int tokens, router_bias_dtype, patience;
  float alpha, limit, up_bias;
  quantize_rules rules;
} fused_moe_args;
KERNEL_ARGS(fused_moe_args, 656);
