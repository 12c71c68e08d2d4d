// Weighted combine. One work-item a token on a CPU (LANES = 1), 64 and more on a GPU. Each walks the K rows in order for
// its columns, so the sums are the same whatever the number of lanes.
#include "kernels_cl/lib/dtype.clh"
#include "kernels_cl/lib/columns.clh"

#pragma OPENCL FP_CONTRACT OFF

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void combine(
    const __global STORAGE(ROWS_DTYPE) * rows, ulong rows_first, const __global int* slot_rows, ulong slot_rows_first,
    const __global float* weights, ulong weights_first, const __global STORAGE(SHARED_DTYPE) * shared, ulong shared_first,
    const __global float* shared_gate, ulong shared_gate_first, __global STORAGE(OUT_DTYPE) * out, ulong out_first,
    long rows_stride, long weights_stride, long shared_stride, long gate_stride, long out_stride, uint row_count, int top_k,
    int hidden, int skip_zero_weights) {
  const long token = get_group_id(0);
  rows += rows_first;
  slot_rows += slot_rows_first + token * top_k;
  if (weights) weights += weights_first + token * weights_stride;
  if (shared) shared += shared_first + token * shared_stride;
  const float gate = shared_gate ? 1.0f / (1.0f + exp(-shared_gate[shared_gate_first + token * gate_stride])) : 1.0f;
  out += out_first + token * out_stride;

  FOR_EACH_STEP(first, hidden) {
    float16 sum = 0.0f;
    for (int k = 0; k < top_k; ++k) {
      const int row = slot_rows[k];  // rusticl 22.3 compares it wrongly as a long
      const float weight = weights ? weights[k] : 1.0f;
      if (row >= 0 && (uint)row < row_count && !(skip_zero_weights && weight == 0.0f))
        sum += weight * LOAD_STEP(ROWS_DTYPE)(rows + (long)row * rows_stride, first, hidden);
    }
    if (shared) sum += gate * LOAD_STEP(SHARED_DTYPE)(shared, first, hidden);
    STORE_STEP(OUT_DTYPE)(sum, out, first, hidden);
  }
}
