// Quantizes rows to integers or 8-bit floats. A row is shared by -DLANES work-items: 1 on a CPU, 64 on a GPU.
#include "kernels_cl/common/columns.clh"
#include "kernels_cl/common/dtype.clh"
#include "kernels_cl/common/lanes.clh"
#include "kernels_cl/common/rows.clh"
#include "kernels_cl/common/vector16.clh"
#include "kernels_cl/quantize/hif8.clh"
#include "kernels_cl/quantize/minifloat.clh"
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

// Functions that -DSCHEME selects: quantizer_of_<scheme> finds the quantizer of a row, codes_<scheme> applies it.
inline Quantizer quantizer_of_symmetric(Row row, float levels, int rounding, __local int* scratch) {
  int16 largest = 0;
  FOR_EACH_STEP (first, row.width) largest = max(largest, magnitude_bits(values(row, first)));
  return symmetric_quantizer(as_float(max_int_over_lanes(max_int_of_16(largest), scratch)), levels, rounding);
}
inline float16 codes_symmetric(Quantizer q, float16 x) { return symmetric_codes(q, x); }

// Converts numbers to integers that have the same order, with NaN at either end, and back.
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
inline float16 codes_given(Quantizer q, float16 x) { return offset_codes(q.levels, x * q.scale); }

// Functions that -DFLOATS selects: codes of 8-bit floats.
inline int16 float_codes_e4m3(float16 x, float limit) {
  const Minifloat e4m3 = {8, 3, -6, 0x7e};
  return minifloat_codes(e4m3, x, 0, HALVES_TO_EVEN);
}
inline int16 float_codes_e5m2(float16 x, float limit) {
  const Minifloat e5m2 = {8, 2, -14, 0x7b};
  return minifloat_codes(e5m2, x, 0, HALVES_TO_EVEN);
}
inline int16 float_codes_hif8(float16 x, float limit) { return hif8_codes(x, limit); }
inline float16 quotients_given(Quantizer q, float16 x) { return x * q.scale; }
// In a row of zeros (scale 0) all quotients are +0.
inline float16 quotients_symmetric(Quantizer q, float16 x) {
  return q.scale == 0.0f ? (float16)(0.0f) : symmetric_quotients(q, x);
}

#if IS_FLOATS
inline int16 float_codes(Quantizer q, float16 x) {
  return OF(float_codes, FLOATS)(OF(quotients, SCHEME)(q, x), q.levels);
}
inline void store_codes(Quantizer quantizer, float16 x, __global uchar* q, int first, int width) {
  store_step_bytes(float_codes(quantizer, x), q, first, width);
}
inline Quantizer float_quantizer(float amax, quantize_rows_args args) {
  amax = amax < args.least_amax ? args.least_amax : amax;
  return POWER_OF_TWO ? power_of_two_quantizer(amax, args.levels)
                      : symmetric_quantizer(amax, args.levels, args.rounding);
}
inline float16 neighbours(Row row, int column, int end) {
  const float16 x = OF(load_upto16, X_DTYPE)(row.x, column, end - column);
  return row.smooth ? x * OF(load_upto16, SMOOTH_DTYPE)(row.smooth, column, end - column) : x;
}
#else
inline void store_codes(Quantizer quantizer, float16 x, __global STORAGE(Q_DTYPE)* q, int first, int width) {
  OF(store_step, Q_DTYPE)(OF(codes, SCHEME)(quantizer, x), q, first, width);
}
#endif

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
  // A row that stays untouched has no columns, but its work-items still reach all barriers.
  const bool valid =
      slot >= 0 && source < args.rows && (!row_ends || row_is_valid(row, row_ends, experts, rows_per_expert));
  const long expert = !valid || args.smooth_stride == 0 ? 0
                      : smooth_rows                     ? smooth_rows[args.smooth_rows_first + slot]
                                                        : expert_of_row(row, row_ends, experts, rows_per_expert);
  const Row from = {x + args.x_first + (valid ? source : 0) * args.x_stride,
                    smooth ? smooth + args.smooth_first + expert * args.smooth_stride : 0, valid ? args.width : 0};
  q += args.q_first + row * args.q_stride;
  if (scale) scale += args.scale_first;
  if (offset) offset += args.offset_first;

#if GROUP == 128
  scale += row * args.scale_columns;
  const int groups = (from.width + 127) / 128, lane = get_local_id(0);
  for (int group = lane; group < groups; group += LANES) {
    const int first = group * 128, end = min(first + 128, from.width);
    int16 largest = 0;
    for (int column = first; column < end; column += 16)
      largest = max(largest, magnitude_bits(neighbours(from, column, end)));
    const Quantizer quantizer = float_quantizer(as_float(max_int_of_16(largest)), args);
    scale[group] = quantizer.scale;
    for (int column = first; column < end; column += 16) {
      const uchar16 bytes = convert_uchar16(float_codes(quantizer, neighbours(from, column, end)));
      uchar part[16];
      vstore16(bytes, 0, part);
      for (int j = 0; j < min(16, end - column); ++j) q[column + j] = part[j];
    }
  }
  for (int group = groups + lane; valid && group < args.scale_columns; group += LANES) scale[group] = 0.0f;
#elif GROUP == 8
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
#if IS_GIVEN
  const Quantizer quantizer = {scale ? scale[0] : 1.0f, 0.0f, args.levels, args.rounding, 0.0f, 0.0f};
#elif STATIC
  const Quantizer quantizer = {
      rounded_to_f16(scale[0]).s0, rounded_to_f16(offset[0]).s0, args.levels, args.rounding, 0.0f, 0.0f};
#else
  const Quantizer quantizer = OF(quantizer_of, SCHEME)(from, args.levels, args.rounding, scratch);
  if (get_local_id(0) == 0 && valid) {
    scale[row] = quantizer.scale;
    if (offset) offset[row] = quantizer.offset;
  }
#endif
  FOR_EACH_STEP (first, from.width) store_codes(quantizer, values(from, first), q, first, from.width);
#endif
}
