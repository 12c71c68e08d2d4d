#pragma once
#include "kernels_cl/common/kernel_args.h"
#include "kernels_cl/quantize/quantize_rules.h"

typedef struct {
  long x_first, index_first, row_ends_first, q_first, scale_first, zero_first, global_scales_first;
  long x_stride, q_stride, scale_stride, zero_stride;
  long rows_per_expert, out_rows;
  int rows, width, group, group_rows, divisor, experts;
  quantize_rules rules;
} quantize_groups_args;
KERNEL_ARGS(quantize_groups_args, 176);
