#pragma once
#include "kernels_cl/common/kernel_args.h"

enum { NO_CODES, DYNAMIC_CODES, STATIC_CODES };  // -DQUANTIZE: none, a scale computed per row, given scales

typedef struct {
  long x_first, row_ends_first, column_scale_first, row_scale_first, bias_first;
  long quant_scale_first, quant_offset_first, out_first, scale_first;
  long x_stride, column_scale_stride, bias_stride, quant_scale_stride, quant_offset_stride, out_stride;
  long rows_per_expert;
  int width, experts, gated, gate_is_right, scalar_quant, rounding, pad;
  float alpha, limit, up_bias;
} gated_activation_args;
KERNEL_ARGS(gated_activation_args, 168);
