// Groups of neighbouring columns become codes with a scale each, or the numbers that the codes stand for. On a CPU a
// work-item walks the groups of a row; on a GPU teams of the work-group's lanes take a group each.
#include "kernels_cl/lib/dtype.clh"
#include "kernels_cl/lib/columns.clh"
#include "kernels_cl/lib/lanes.clh"
#include "kernels_cl/lib/codes.clh"
#include "kernels_cl/lib/quantize_row.clh"
#include "kernels_cl/lib/rows.clh"
#include "kernels_cl/lib/vector16.clh"

#pragma OPENCL FP_CONTRACT OFF

enum { RULE_RATIO, RULE_POWER_OF_TWO, RULE_MX_FLOOR, RULE_MX_CEIL, RULE_MX_EVEN, RULE_E4M3, RULE_RANGE, RULE_RATIO_OVER_ROWS, RULE_GIVEN };
enum { QUOTIENT_DIVIDE, QUOTIENT_RECIPROCAL, QUOTIENT_LARGEST_BY_AMAX };
enum { ROUND_HALVES_TO_EVEN, ROUND_HALVES_AWAY, ROUND_TOWARD_ZERO };

typedef struct {
  Minifloat format;  // no bits: integers
  int rule, quotient, rounding;
  float largest;  // number of the format
  float least_amax, most_amax, least_scale, global_scale;
} Rules;
inline bool is_integer(Rules rules) { return rules.format.bits == 0; }
inline bool is_mx(Rules rules) { return rules.rule >= RULE_MX_FLOOR && rules.rule <= RULE_MX_EVEN; }

typedef struct {
  float scale;            // what the codes count
  float divisor, factor;  // quotients are x / divisor or x * factor
  int byte;               // of e8m0, or of the scale's own code
  float zero;             // the code of 0
} Scale;

inline Scale scale_of_number(float scale, float amax, Rules rules) {
  Scale s = {scale, scale, 1.0f / scale, as_int(scale) >> 23};
  if (rules.quotient == QUOTIENT_LARGEST_BY_AMAX) s.factor = rules.largest / amax;
  return s;
}

// A scale below the normal numbers counts as 0, and the group as zeros under scale 1: quotients would depend on how a device
// treats subnormal numbers.
inline Scale scale_of_ratio(int bits, Rules rules) {
  if (bits <= 0x7f800000) bits = clamp(bits, as_int(rules.least_amax), as_int(rules.most_amax));
  const float ratio = as_float(bits) / rules.largest;
  float scale = ratio < rules.least_scale ? rules.least_scale : ratio;
  if (scale < FLT_MIN) {
    const Scale zeros = {1.0f, INFINITY, 0.0f, 127};
    return zeros;
  }
  if (rules.rule == RULE_POWER_OF_TWO && as_int(scale) < 0x7f800000) scale = as_float((as_int(scale) + 0x007fffff) & 0xff800000);
  return scale_of_number(scale, as_float(bits), rules);
}
// A group of subnormal numbers has code 0, scale 0 and quotients 0.
inline Scale scale_of_e4m3(int bits, Rules rules) {
  const Minifloat e4m3 = {8, 3, -6, 0x7e};
  const int code = minifloat_codes(e4m3, rules.global_scale * as_float(bits) / rules.largest, 0, HALVES_TO_EVEN).s0;
  const float scale = bits > 0x7f800000 ? NAN : value_f8_e4m3(code);
  const Scale s = {scale, 0.0f, scale == 0.0f ? 0.0f : rules.global_scale / scale, code};
  return s;
}
// From the bits of a group's greatest number and of the magnitude of its least, each 0 where there is none of its sign.
inline Scale scale_of_range(int greatest, int least) {
  const float scale = (as_float(greatest) + as_float(least)) / 255.0f;
  const Scale zeros = {1.0f, INFINITY, 0.0f, 127, -128.0f};
  if (scale < FLT_MIN) return zeros;
  const float zero = rint(-128.0f + as_float(least) / scale);
  const Scale s = {scale, scale, 0.0f, 0, isnan(zero) ? 0.0f : zero};
  return s;
}
// From the bits of a group's largest magnitude.
inline Scale scale_of(int bits, Rules rules) {
  if (rules.rule == RULE_E4M3) return scale_of_e4m3(bits, rules);
  if (!is_mx(rules)) return scale_of_ratio(bits, rules);
  const int byte = block_scale(rules.format, rules.rule - RULE_MX_FLOOR, bits, 0);
  const Scale s = {value_e8m0(byte), 0.0f, 0.0f, byte};
  return s;
}

inline float16 codes_of(Scale s, float16 x, Rules rules) {
  if (is_mx(rules)) {
    const int16 codes = minifloat_codes(rules.format, x, s.byte - 127, HALVES_TO_EVEN);
    return s.byte == SCALE_NAN ? (float16)(0.0f) : convert_float16(codes);
  }
  const float16 quotient = rules.quotient == QUOTIENT_DIVIDE ? x / s.divisor : x * s.factor;
  if (!is_integer(rules)) return convert_float16(minifloat_codes(rules.format, quotient, 0, HALVES_TO_EVEN));
  float16 code = rules.rounding == ROUND_HALVES_TO_EVEN ? rint(quotient)
                 : rules.rounding == ROUND_HALVES_AWAY  ? round(quotient)
                                                        : trunc(quotient);
  code += s.zero;
  const float least = rules.rule == RULE_GIVEN || rules.rule == RULE_RANGE ? -rules.largest - 1.0f : -rules.largest;
  return select(min(max(code, (float16)(least)), (float16)(rules.largest)), (float16)(0.0f), isnan(quotient));
}

// A NaN stays one in a format without NaN too.
inline float16 values_of(Scale s, float16 codes, float16 x, Rules rules) {
  if (!is_integer(rules)) codes = minifloat_value16(rules.format, convert_int16(codes));
  const float16 values = (codes - s.zero) * s.scale;
  return select(rules.rule == RULE_E4M3 ? values / rules.global_scale : values, x, isnan(x));
}

// Of columns [0, width), for each lane of the team.
inline int largest_bits(const __global STORAGE(X_DTYPE)* x, int width, __local int* scratch) {
  int16 largest = 0;
  for (int first = 0; first < width; first += STEP_COLUMNS) largest = max(largest, magnitude_bits(LOAD_STEP(X_DTYPE)(x, first, width)));
  return max_int_over_lanes(max_int_of_16(largest), scratch);
}

// The same of the numbers of one sign; a NaN has both.
inline int largest_bits_of_sign(const __global STORAGE(X_DTYPE)* x, int width, float sign, __local int* scratch) {
  int16 largest = 0;
  for (int first = 0; first < width; first += STEP_COLUMNS) {
    const float16 values = LOAD_STEP(X_DTYPE)(x, first, width);
    largest = max(largest, select(magnitude_bits(values), (int16)(0), values * sign <= 0.0f));
  }
  return max_int_over_lanes(max_int_of_16(largest), scratch);
}

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void quantize_groups(
    const __global STORAGE(X_DTYPE) * x, ulong x_first, const __global int* index, ulong index_first,
    const __global int* row_ends, ulong row_ends_first, __global STORAGE(Q_DTYPE) * q, ulong q_first,
    __global STORAGE(SCALE_DTYPE) * scale, ulong scale_first, __global int* zero, ulong zero_first, long x_stride, long q_stride,
    long scale_stride, long zero_stride, int rows, int width,
    int group, int group_rows, int divisor, int experts, long rows_per_expert, int bits, int mantissa_bits, int min_exponent, int largest_code,
    int rule, int quotient, int rounding, float largest, float least_amax, float most_amax, float least_scale,
    float global_scale) {
  __local int scratch[LANES];
  const Rules rules = {{bits, mantissa_bits, min_exponent, largest_code}, rule, quotient, rounding, largest,
                       least_amax, most_amax, least_scale, global_scale};
  const long row = get_group_id(0);
  const long source = gathered_row(row, index ? index + index_first : 0, divisor, rows, row_ends ? row_ends + row_ends_first : 0,
                                   experts, rows_per_expert);
  x += x_first + max(source, 0L) * x_stride;
  q += q_first + row * q_stride;
  scale += scale ? scale_first : 0;
  zero += zero ? zero_first : 0;
  const int teams = LANES / TEAM, groups = (width - 1) / group + 1;
  for (int first = (int)get_group_id(1) * teams; first < groups; first += (int)get_num_groups(1) * teams) {
    // A team past the last group, or of a row to leave alone, has no columns: all still meet at the barriers.
    const int at = first + TEAM_FIRST / TEAM, begin = min(at, groups) * group;
    const int columns = source < 0 ? 0 : clamp(width - begin, 0, group);
#if HAS_SCALE
    const Scale s = scale_of_number(scale[row / group_rows * scale_stride + min(at, groups - 1)], 0.0f, rules);
#else
    const Scale s = rules.rule == RULE_RANGE ? scale_of_range(largest_bits_of_sign(x + begin, columns, 1.0f, scratch),
                                                              largest_bits_of_sign(x + begin, columns, -1.0f, scratch))
                                             : scale_of(largest_bits(x + begin, columns, scratch), rules);
    if (TEAM_LANE == 0 && columns > 0 && zero) zero[row * zero_stride + at] = (int)s.zero;
    if (TEAM_LANE == 0 && columns > 0 && scale) STORE(SCALE_DTYPE)(SCALE_IS_CODE ? s.byte : s.scale, scale, row * scale_stride + at);
#endif
    for (int step = 0; step < columns; step += STEP_COLUMNS) {
      const float16 values = LOAD_STEP(X_DTYPE)(x + begin, step, columns), codes = codes_of(s, values, rules);
      STORE_STEP(Q_DTYPE)(IS_VALUES ? values_of(s, codes, values, rules) : codes, q + begin, step, columns);
    }
  }
}

// Dynamic scales of groups in several rows: the bits of the largest magnitude, which order as the numbers do, then the
// scale itself.
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void largest_of_rows(
    const __global STORAGE(X_DTYPE) * x, ulong x_first, const __global int* index, ulong index_first,
    const __global int* row_ends, ulong row_ends_first, __global int* bits, ulong bits_first, long x_stride, long bits_stride,
    int rows, int width, int group, int group_rows, int divisor, int experts, long rows_per_expert) {
  __local int scratch[LANES];
  const long row = get_group_id(0);
  const long source = gathered_row(row, index ? index + index_first : 0, divisor, rows, row_ends ? row_ends + row_ends_first : 0,
                                   experts, rows_per_expert);
  x += x_first + max(source, 0L) * x_stride;
  bits += bits_first + row / group_rows * bits_stride;
  const int teams = LANES / TEAM, groups = (width - 1) / group + 1;
  for (int first = (int)get_group_id(1) * teams; first < groups; first += (int)get_num_groups(1) * teams) {
    const int at = first + TEAM_FIRST / TEAM, begin = min(at, groups) * group;
    const int columns = source < 0 ? 0 : clamp(width - begin, 0, group);
    const int found = largest_bits(x + begin, columns, scratch);
    if (TEAM_LANE == 0 && columns > 0) atomic_max(bits + at, found);
  }
}

__kernel void scale_of_largest(__global float* scale, ulong scale_first, float largest, float least_amax, float most_amax,
                               float least_scale, int rule) {
  const Rules rules = {{0, 0, 0, 0}, rule, QUOTIENT_DIVIDE, 0, largest, least_amax, most_amax, least_scale, 1.0f};
  scale += scale_first + get_global_id(0);
  *scale = scale_of_ratio(as_int(*scale), rules).scale;
}
