// Integer quantization of rows. One work-item a row on a CPU (LANES = 1), 64 on a GPU.
#include "kernels_cl/common/columns.clh"
#include "kernels_cl/common/dtype.clh"
#include "kernels_cl/common/lanes.clh"
#include "kernels_cl/common/rows.clh"
#include "kernels_cl/common/vector16.clh"
#include "kernels_cl/quantize/quantize_row.clh"
#include "kernels_cl/quantize/quantize_rows_args.h"

#pragma OPENCL FP_CONTRACT OFF

typedef struct {
  const __global STORAGE(X_DTYPE)* x;
  const __global STORAGE(SMOOTH_DTYPE)* smooth;  // NULL: none
  int width;
} Row;

inline float16 values(Row row, int first) {
  const float16 x = OF(load_step, X_DTYPE)(row.x, first, row.width);
  return row.smooth ? x * OF(load_step, SMOOTH_DTYPE)(row.smooth, first, row.width) : x;
}

// What -DSCHEME names: how a row finds its quantizer, and the codes that this gives.
inline Quantizer quantizer_of_symmetric(Row row, float levels, int rounding, __local int* scratch) {
  int16 largest = 0;
  FOR_EACH_STEP (first, row.width) largest = max(largest, magnitude_bits(values(row, first)));
  return symmetric_quantizer(as_float(max_int_over_lanes(max_int_of_16(largest), scratch)), levels, rounding);
}
inline float16 codes_symmetric(Quantizer q, float16 x) { return symmetric_codes(q, x); }

// Integers that order as the numbers do, with NaN at either end; and back.
inline int16 ordered_bits(float16 x) { return as_int16(x) ^ (as_int16(x) >> 31 & 0x7fffffff); }
inline float value_of(int bits) { return as_float(bits ^ (bits >> 31 & 0x7fffffff)); }

inline Quantizer quantizer_of_asymmetric(Row row, float levels, int rounding, __local int* scratch) {
  int16 largest = INT_MIN, smallest = INT_MAX;
  FOR_EACH_STEP (first, row.width) {
    const int16 bits = ordered_bits(values(row, first)),
                inside = step_column(first, 0) + INDEX_16 * (NEIGHBOURS ? 1 : TEAM) < row.width;
    largest = max(largest, select((int16)(INT_MIN), bits, inside));
    smallest = min(smallest, select((int16)(INT_MAX), bits, inside));
  }
  const float high = value_of(max_int_over_lanes(max_int_of_16(largest), scratch));
  const float low = value_of(min_int_over_lanes(~max_int_of_16(~smallest), scratch));
  const float scale = (high - low) / (2.0f * levels + 1.0f);
  Quantizer q = {scale < 1e-12f ? 1e-12f : scale, 0.0f, levels, rounding, 0.0f, 0.0f};
  q.offset = levels - high / q.scale;
  return q;
}
inline float16 codes_asymmetric(Quantizer q, float16 x) { return offset_codes(q.levels, x / q.scale + q.offset); }

inline float16 codes_static_f16(Quantizer q, float16 x) {
  const float16 scaled = rounded_to_f16(rounded_to_f16(x) * q.scale);
  return offset_codes(q.levels, rounded_to_f16(scaled + q.offset));
}

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void quantize_rows(
    const __global STORAGE(X_DTYPE)* x, const __global int* index, const __global int* row_ends,
    const __global STORAGE(SMOOTH_DTYPE)* smooth, const __global int* smooth_rows, __global STORAGE(Q_DTYPE)* q,
    __global STORAGE(SCALE_DTYPE)* scale, __global float* offset, const quantize_rows_args given) {
  const quantize_rows_args args = given;
  __local int scratch[LANES];
  const int experts = args.experts;
  const long row = get_group_id(0), rows_per_expert = args.rows_per_expert;
  if (row_ends) row_ends += args.row_ends_first;
  const int slot = index ? index[args.index_first + row] : 0;
  const long source = index ? slot / DIVISOR(args.divisor) : row;
  // A row to leave alone has no columns: all work-items still meet at the barriers.
  const bool valid =
      slot >= 0 && source < args.rows && (!row_ends || row_is_valid(row, row_ends, experts, rows_per_expert));
  const long expert = !valid || args.smooth_stride == 0 ? 0
                      : smooth_rows                     ? smooth_rows[args.smooth_rows_first + slot]
                                                        : expert_of_row(row, row_ends, experts, rows_per_expert);
  const Row from = {x + args.x_first + (valid ? source : 0) * args.x_stride,
                    smooth ? smooth + args.smooth_first + expert * args.smooth_stride : 0, valid ? args.width : 0};
  q += args.q_first + row * args.q_stride;
  scale += args.scale_first;
  if (offset) offset += args.offset_first;

#if GROUPED
  scale += row * (args.width / 8);
  FOR_EACH_STEP (first, from.width) {
    const float16 x = values(from, first);
    const int16 bits = magnitude_bits(x);
    const int column = step_column(first, 0);
    const float low_amax = as_float(max_int_of_16((int16)(bits.lo, (int8)(0)))),
                high_amax = as_float(max_int_of_16((int16)((int8)(0), bits.hi)));
    const Quantizer low = symmetric_quantizer(low_amax, args.levels, args.rounding),
                    high = symmetric_quantizer(high_amax, args.levels, args.rounding);
    OF(store_step, Q_DTYPE)((float16)(symmetric_codes(low, x).lo, symmetric_codes(high, x).hi), q, first, from.width);
    if (column < args.width) OF(store, SCALE_DTYPE)(low.scale, scale, column / 8);
    if (column + 8 < args.width) OF(store, SCALE_DTYPE)(high.scale, scale, column / 8 + 1);
  }
#else
#if STATIC
  const Quantizer quantizer = {
      rounded_to_f16(scale[0]).s0, rounded_to_f16(offset[0]).s0, args.levels, args.rounding, 0.0f, 0.0f};
#else
  const Quantizer quantizer = OF(quantizer_of, SCHEME)(from, args.levels, args.rounding, scratch);
  if (get_local_id(0) == 0 && valid) {
    scale[row] = quantizer.scale;
    if (offset) offset[row] = quantizer.offset;
  }
#endif
  FOR_EACH_STEP (first, from.width)
    OF(store_step, Q_DTYPE)(OF(codes, SCHEME)(quantizer, values(from, first)), q, first, from.width);
#endif
}
