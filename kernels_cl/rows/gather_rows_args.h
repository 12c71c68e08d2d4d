#include "kernels_cl/common/kernel_args.h"

typedef struct {
  long x_first, index_first, row_ends_first, out_first;
  long x_stride, out_stride;
  long rows_per_expert;
  int rows, hidden, divisor, experts;
} gather_rows_args;
KERNEL_ARGS(gather_rows_args, 72);
