#pragma once
#include "kernels_cl/common/kernel_args.h"

typedef struct {
  long x_first, index_first, row_ends_first, smooth_first, smooth_rows_first, q_first, scale_first, offset_first;
  long x_stride, smooth_stride, q_stride;
  long rows_per_expert;
  int rows, width, divisor, experts, rounding, scale_columns;
  float levels, least_amax;
} quantize_rows_args;
KERNEL_ARGS(quantize_rows_args, 128);
