#pragma once
#include "kernels_cl/common/kernel_args.h"

typedef struct {
  long x_first, alpha_1_first, alpha_2_first, v_first, rows_first;
  long x_stride;
  int tokens, hidden, wide, pad;  // wide: an alpha for each column
} const_experts_args;
KERNEL_ARGS(const_experts_args, 64);
