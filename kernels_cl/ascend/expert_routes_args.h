#pragma once
#include "kernels_cl/common/kernel_args.h"

typedef struct {
  long expert_ids_first, mask_first, weights_first, owners_first, smooth_rows_first, row_weights_first;
  long special_rows_first, active_first, fault_first;
  int count, top_k, pair_mask;  // count: tokens
  int experts, zero_experts, copy_experts, const_experts, shared_experts, shared_ranks, rank;
} expert_routes_args;
KERNEL_ARGS(expert_routes_args, 112);
