#pragma once
#include "kernels_cl/common/kernel_args.h"

// Arguments of all grouped GEMM kernels. `slots` and the scales and biases of columns start at the segment's first
// expert. So do the weights and their group scales if there are no slots. row_ends start at expert 0. `q_..` and the
// last five floats are for rows that become codes, `parts` and `stamps` for K-slices.
typedef struct {
  long a_first, a_index_first, a_scale_first;
  long weights_first, group_scale_first, group_zero_first, group_index_first, slots_first;
  long sum_bias_first, weight_scale_first, bias_first;
  long row_ends_first, k_ends_first, out_first;
  long q_first, q_scale_first, parts_first, stamps_first;
  long a_stride, a_scale_stride, sum_bias_stride;
  long weight_scale_stride, weight_scale_column_stride, bias_stride, bias_column_stride, out_stride;
  long q_stride, q_scale_stride;
  long rows_per_expert;
  long stamp;  // the first stamp of this launch
  int a_rows, rows, n, k, groups, index_divisor, first_expert, experts;
  int weight_scale_dtype, bias_dtype, a_scale_bias;
  int patience;  // number of polls of a stamp until its K-slice counts as late
  float alpha, limit, up_bias;
  float largest, least_amax, most_amax, least_scale, global_scale;
} grouped_gemm_args;
KERNEL_ARGS(grouped_gemm_args, 320);
