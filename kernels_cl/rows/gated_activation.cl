// Activation between an expert's two products. LANES work-items per row: 1 on a CPU, 64 or more on a GPU. Rows with
// DYNAMIC_CODES are computed twice: once for the largest magnitude, once to write the codes.
#include "kernels_cl/common/columns.clh"
#include "kernels_cl/common/dtype.clh"
#include "kernels_cl/common/lanes.clh"
#include "kernels_cl/common/rows.clh"
#include "kernels_cl/common/vector16.clh"
#include "kernels_cl/quantize/quantize_row.clh"
#include "kernels_cl/rows/activation16.clh"
#include "kernels_cl/rows/gated_activation_args.h"

// Loads a step of half a row: the left (right = 0) or right half (1); with -DINTERLEAVED=1 the even or odd columns.
#if !INTERLEAVED
#define HALF_OF(dtype, type)                                                                         \
  inline type##16 half_##dtype(const __global storage_##dtype* x, int right, int first, int width) { \
    return load_step_##dtype(x + right * width, first, width);                                       \
  }
#elif LANES == 1
#define HALF_OF(dtype, type)                                                                         \
  inline type##16 half_##dtype(const __global storage_##dtype* x, int right, int first, int width) { \
    const type##16 low = load_upto16_##dtype(x, 2 * first, 2 * (width - first));                     \
    const type##16 high = load_upto16_##dtype(x, 2 * first + 16, 2 * (width - first) - 16);          \
    return right ? (type##16)(low.odd, high.odd) : (type##16)(low.even, high.even);                  \
  }
#else
#define HALF_OF(dtype, type)                                                                            \
  inline type##16 half_##dtype(const __global storage_##dtype* x, int right, int first, int width) {    \
    type part[16];                                                                                      \
    for (int j = 0; j < 16; ++j)                                                                        \
      part[j] = step_column(first, j) < width ? load_##dtype(x, 2 * step_column(first, j) + right) : 0; \
    return vload16(0, part);                                                                            \
  }
#endif
HALF_OF(f32, float)
HALF_OF(f16, float)
HALF_OF(bf16, float)
HALF_OF(i32, int)

// A row, and the operands that dequantize its columns; absent ones are NULL.
typedef struct {
  const __global STORAGE(X_DTYPE)* x;
  const __global float* column_scale;
  const __global STORAGE(BIAS_DTYPE)* bias;
  float scale;
  int width;
} Row;

inline float16 dequantized(Row row, int right, int first) {
#if !DEQUANTIZE
  return convert_float16(OF(half, X_DTYPE)(row.x, right, first, row.width));
#else
  // An i32 bias comes with i32 rows, so the sum is exact.
#if BIAS_IS_I32
  const int16 sum =
      OF(half, X_DTYPE)(row.x, right, first, row.width) + OF(half, BIAS_DTYPE)(row.bias, right, first, row.width);
  float16 y = convert_float16(sum);
#else
  float16 y = convert_float16(OF(half, X_DTYPE)(row.x, right, first, row.width));
#endif
  if (row.column_scale) y *= half_f32(row.column_scale, right, first, row.width);
  y *= row.scale;
#if !BIAS_IS_I32
  if (row.bias) y += OF(half, BIAS_DTYPE)(row.bias, right, first, row.width);
#endif
  return y;
#endif
}

typedef struct {
  int gated, gate_is_right;
} Halves;

inline float16 activated(Activation a, Halves halves, Row row, int first) {
  const int right = halves.gate_is_right;
  const float16 g = dequantized(row, right, first);
  return OF(apply, FUNCTION)(g, halves.gated ? dequantized(row, 1 - right, first) : (float16)(1.0f), a);
}

// One value for all columns, or one for each.
inline float16 quant_values(const __global float* values, int scalar, int first, int width) {
  return scalar ? (float16)(values[0]) : load_step_f32(values, first, width);
}

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void gated_activation(
    const __global STORAGE(X_DTYPE)* x, const __global int* row_ends, const __global float* column_scale,
    const __global float* row_scale, const __global STORAGE(BIAS_DTYPE)* bias, const __global float* quant_scale,
    const __global float* quant_offset, __global STORAGE(OUT_DTYPE)* out, __global float* scale,
    const gated_activation_args given) {
  const gated_activation_args args = given;
  __local int scratch[LANES];
  const long row = get_group_id(0);
  const Activation a = {args.alpha, args.limit, args.up_bias};
  const Halves halves = {args.gated, args.gate_is_right};
  const int experts = args.experts, scalar_quant = args.scalar_quant;
  out += args.out_first + row * args.out_stride;
  if (row_ends) row_ends += args.row_ends_first;
  // An invalid row gets width 0 instead of a return: all work-items must meet at the barriers.
  const bool valid = !row_ends || row_is_valid(row, row_ends, experts, args.rows_per_expert);
  const int width = valid ? args.width : 0;
  const long expert = valid && row_ends ? expert_of_row(row, row_ends, experts, args.rows_per_expert) : 0;
  const Row from = {x + args.x_first + row * args.x_stride,
                    column_scale ? column_scale + args.column_scale_first + expert * args.column_scale_stride : 0,
                    bias ? bias + args.bias_first + expert * args.bias_stride : 0,
                    valid && row_scale ? row_scale[args.row_scale_first + row] : 1.0f, width};
  if (quant_scale) quant_scale += args.quant_scale_first + expert * args.quant_scale_stride;
  if (quant_offset) quant_offset += args.quant_offset_first + expert * args.quant_offset_stride;

  Quantizer quantizer;
  if (QUANTIZE == DYNAMIC_CODES) {
    int16 largest = 0;
    FOR_EACH_STEP (first, width) {
      float16 y = activated(a, halves, from, first);
      if (quant_scale) y *= quant_values(quant_scale, scalar_quant, first, width);
      largest = max(largest, magnitude_bits(y));
    }
    const float amax = as_float(max_int_over_lanes(max_int_of_16(largest), scratch));
    quantizer = symmetric_quantizer(amax, 127.0f, args.rounding);
    if (get_local_id(0) == 0 && valid) scale[args.scale_first + row] = quantizer.scale;
  }
  FOR_EACH_STEP (first, width) {
    float16 y = activated(a, halves, from, first);
    if (QUANTIZE == DYNAMIC_CODES) {
      if (quant_scale) y *= quant_values(quant_scale, scalar_quant, first, width);
      y = symmetric_codes(quantizer, y);
    } else if (QUANTIZE == STATIC_CODES) {
      const float16 divisor = quant_values(quant_scale, scalar_quant, first, width);
      y = scalar_quant ? y * (1.0f / divisor) : y / divisor;
      if (quant_offset) y += quant_values(quant_offset, scalar_quant, first, width);
      y = offset_codes(127.0f, y);
    }
    OF(store_step, OUT_DTYPE)(y, out, first, width);
  }
}
