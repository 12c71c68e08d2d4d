// Per-token dynamic int8 quantization. One work-item a row on a CPU (LANES = 1), 64 on a GPU.
#include "kernels_cl/lib/dtype.clh"
#include "kernels_cl/lib/columns.clh"
#include "kernels_cl/lib/lanes.clh"
#include "kernels_cl/lib/quantize_row.clh"
#include "kernels_cl/lib/rows.clh"
#include "kernels_cl/lib/vector16.clh"

#pragma OPENCL FP_CONTRACT OFF

// Rounding
enum { DIVIDE, DIVIDE_SCALED, MULTIPLY_RECIPROCAL, MULTIPLY_127_BY_AMAX };

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void dynamic_quant(
    const __global STORAGE(X_DTYPE) * x, ulong x_first, const __global int* row_ends, ulong row_ends_first, __global char* q,
    ulong q_first, __global float* scale, ulong scale_first, long x_stride, long q_stride, int width, int experts,
    long rows_per_expert, int rounding) {
  __local int scratch[LANES];
  const long row = get_group_id(0);
  x += x_first + row * x_stride;
  q += q_first + row * q_stride;
  // An invalid row has no columns: all work-items still meet at the barriers.
  const bool valid = !row_ends || row_is_valid(row, row_ends + row_ends_first, experts, rows_per_expert);
  if (!valid) width = 0;

  int16 largest = 0;
  FOR_EACH_STEP(first, width) largest = max(largest, magnitude_bits(LOAD_STEP(X_DTYPE)(x, first, width)));
  const float amax = as_float(max_int_over_lanes(max_int_of_16(largest), scratch));
  float row_scale = amax / 127.0f;
  if (rounding == DIVIDE_SCALED) row_scale = amax * (1.0f / 127.0f);
  if (rounding == MULTIPLY_127_BY_AMAX) row_scale = 1.0f / (127.0f / amax);
  row_scale = int8_scale(row_scale);
  if (get_local_id(0) == 0 && valid) scale[scale_first + row] = row_scale;

  const float divisor = int8_divisor(row_scale);
  const float factor = rounding == MULTIPLY_127_BY_AMAX && row_scale > 0.0f ? 127.0f / amax : 1.0f / divisor;
  const bool divide = rounding == DIVIDE || rounding == DIVIDE_SCALED;
  FOR_EACH_STEP(first, width) {
    const float16 value = LOAD_STEP(X_DTYPE)(x, first, width);
    STORE_STEP(i8)(int8_rounded(divide ? value / divisor : value * factor), q, first, width);
  }
}
