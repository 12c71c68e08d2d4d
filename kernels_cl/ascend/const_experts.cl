// Rows of copy and constant experts. One work-item a row on a CPU (LANES = 1), 64 on a GPU.
#include "kernels_cl/common/dtype.clh"
#include "kernels_cl/common/columns.clh"
#include "kernels_cl/common/divisor.clh"

#pragma OPENCL FP_CONTRACT OFF

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void const_experts(
    const __global STORAGE(X_DTYPE) * x, ulong x_first, const __global STORAGE(X_DTYPE) * alpha_1, ulong alpha_1_first,
    const __global STORAGE(X_DTYPE) * alpha_2, ulong alpha_2_first, const __global STORAGE(X_DTYPE) * v, ulong v_first,
    __global float* rows, ulong rows_first, long x_stride, int tokens, int hidden, int wide) {
  const long row = get_group_id(0);
  const int expert = row / DIVISOR(tokens) - 1;
  x += x_first + row % DIVISOR(tokens) * x_stride;
  rows += rows_first + row * hidden;
  FOR_EACH_STEP(first, hidden) {
    float16 value = LOAD_STEP(X_DTYPE)(x, first, hidden);
    if (expert >= 0) {
      const float16 a = wide ? LOAD_STEP(X_DTYPE)(alpha_1 + alpha_1_first + (long)expert * hidden, first, hidden)
                             : (float16)(LOAD(X_DTYPE)(alpha_1, alpha_1_first + expert));
      const float16 b = wide ? LOAD_STEP(X_DTYPE)(alpha_2 + alpha_2_first + (long)expert * hidden, first, hidden)
                             : (float16)(LOAD(X_DTYPE)(alpha_2, alpha_2_first + expert));
      value = a * value + b * LOAD_STEP(X_DTYPE)(v + v_first + (long)expert * hidden, first, hidden);
    }
    STORE_STEP(f32)(value, rows, first, hidden);
  }
}
