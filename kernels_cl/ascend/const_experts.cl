// Computes the rows of copy and constant experts. LANES work-items per row: 1 on a CPU, 64 on a GPU.
#include "kernels_cl/ascend/const_experts_args.h"
#include "kernels_cl/common/columns.clh"
#include "kernels_cl/common/divisor.clh"
#include "kernels_cl/common/dtype.clh"

#pragma OPENCL FP_CONTRACT OFF

// An expert's alpha: one for all columns, or with `wide` one per column.
inline float16 alpha_step(const __global STORAGE(X_DTYPE)* alpha, int wide, int expert, int first, int hidden) {
  return wide ? OF(load_step, X_DTYPE)(alpha + (long)expert * hidden, first, hidden)
              : (float16)(OF(load, X_DTYPE)(alpha, expert));
}

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void const_experts(const __global STORAGE(X_DTYPE)* x,
                                                                               const __global STORAGE(X_DTYPE)* alpha_1,
                                                                               const __global STORAGE(X_DTYPE)* alpha_2,
                                                                               const __global STORAGE(X_DTYPE)* v,
                                                                               __global float* rows,
                                                                               const const_experts_args given) {
  const const_experts_args args = given;
  const int hidden = args.hidden;
  const long row = get_group_id(0);
  const int expert = row / DIVISOR(args.tokens) - 1;
  x += args.x_first + row % DIVISOR(args.tokens) * args.x_stride;
  rows += args.rows_first + row * hidden;
  FOR_EACH_STEP (first, hidden) {
    float16 value = OF(load_step, X_DTYPE)(x, first, hidden);
    if (expert >= 0) {
      const float16 a = alpha_step(alpha_1 + args.alpha_1_first, args.wide, expert, first, hidden);
      const float16 b = alpha_step(alpha_2 + args.alpha_2_first, args.wide, expert, first, hidden);
      value = a * value + b * OF(load_step, X_DTYPE)(v + args.v_first + (long)expert * hidden, first, hidden);
    }
    store_step_f32(value, rows, first, hidden);
  }
}
