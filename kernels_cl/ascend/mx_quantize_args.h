#pragma once
#include "kernels_cl/common/kernel_args.h"
#include "kernels_cl/common/shared_codes.h"

enum { MX_BLOCK = 32, MX_GROUP_BLOCKS = 64 };  // numbers per block, blocks per work-group

typedef struct {
  long x_first, index_first, row_ends_first, y_first, scale_first;
  long x_stride, y_stride, scale_stride;
  long rows_per_expert, inner;
  int rows, divisor, experts, length;
  int bits, mantissa_bits, min_exponent, largest;  // the format's
  int scale_rule, rounding, least_scale;
  float least_amax;
} mx_quantize_args;
KERNEL_ARGS(mx_quantize_args, 128);
