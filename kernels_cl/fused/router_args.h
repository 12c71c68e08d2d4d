#pragma once
#include "kernels_cl/common/kernel_args.h"

// The router's product of few tokens: n columns, and K in slices of slice_k, whose sums are parts of the logits.
typedef struct {
  long x_first, weights_first, bias_first, parts_first;
  long x_stride, bias_stride;
  int tokens, n, k, slice_k, bias_dtype, pad;
} router_args;
KERNEL_ARGS(router_args, 72);
