#pragma once
#include "kernels_cl/common/kernel_args.h"

typedef struct {
  long x_first, y_first, out_first;
  long x_stride, y_stride;
  int width, pad;
} row_differences_args;
KERNEL_ARGS(row_differences_args, 48);
