#pragma once
#include "kernels_cl/quantize/quantize_rules.h"
#include "kernels_cl/routing/expert_sort_args.h"
#include "kernels_cl/routing/gating_top_k_args.h"

// Of -DQUANTIZES=1: rows of `width` columns x, a scale for each `group` of them.
typedef struct {
  gating_top_k_args gating;
  expert_sort_args sort;
  long x_first, q_first, scale_first;
  long x_stride, q_stride, scale_stride;
  int tokens, width, group, pad;
  quantize_rules rules;
} route_tokens_args;
KERNEL_ARGS(route_tokens_args, 360);
