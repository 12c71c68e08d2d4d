#pragma once
#include "kernels_cl/fused/grid_barrier_args.h"
#include "kernels_cl/fused/router_args.h"
#include "kernels_cl/quantize/quantize_rules.h"
#include "kernels_cl/routing/expert_sort_args.h"
#include "kernels_cl/routing/gating_top_k_args.h"

// router, grid: used with -DROUTES=1. x, q, scale, width, rules: rows and their codes, used with -DQUANTIZES=1.
// choosers: the number of work-groups that choose experts.
typedef struct {
  gating_top_k_args gating;
  expert_sort_args sort;
  router_args router;
  grid_barrier_args grid;
  long x_first, q_first, scale_first;
  long x_stride, q_stride, scale_stride;
  int tokens, width, choosers, pad;
  quantize_rules rules;
} route_tokens_args;
KERNEL_ARGS(route_tokens_args, 456);
