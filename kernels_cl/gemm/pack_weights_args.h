#pragma once
#include "kernels_cl/common/kernel_args.h"

// Strides count elements; a word of int4 has eight. Row r of a source becomes column first_column + r of its packed
// expert. In the last panel, columns from zero_first on become zero.
typedef struct {
  long source_first, scale_first, offset_first, packed_first;
  long source_stride, row_stride, k_stride, scale_stride, packed_stride;
  int scale_dtype, offset_dtype;  // as any_dtype.clh has them
  int group_size, rows, k, first_column, zero_first, pad;
} pack_weights_args;
KERNEL_ARGS(pack_weights_args, 104);
