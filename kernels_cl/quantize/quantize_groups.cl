// Groups of neighbouring columns become codes with a scale each, or the numbers that the codes stand for. On a CPU a
// work-item walks the groups of a row; on a GPU the teams of all work-groups take the groups of all rows, one each.
#include "kernels_cl/quantize/quantize_group.clh"
#include "kernels_cl/common/rows.clh"

// Groups of a row whose scales a CPU's work-item finds before it makes their codes: a group's codes wait for its scale,
// which takes as long as the codes themselves.
#define AT_ONCE 16

// A group of a row of the result.
typedef struct {
  long row;
  int group;  // the number of groups: the team has none, as it is past the last row
} Place;
INLINE Place place_of_team(int groups, long rows) {
  const uint unit = (uint)get_group_id(0) * TEAMS + TEAM_FIRST / TEAM, row = unit / (uint)DIVISOR(groups);
  const bool exists = row < rows;
  const Place place = {exists ? row : 0, exists ? (int)(unit - row * groups) : groups};
  return place;
}

INLINE Group group_at(const __global STORAGE(X_DTYPE) * x, __global STORAGE(Q_DTYPE) * q, int width, int group, int groups,
                      GroupScale of_row, int at) {
  const int begin = min(at, groups) * group;
  const Group of = {x + begin, q + begin, clamp(width - begin, 0, group),
                    {of_row.scale + (of_row.scale ? min(at, groups - 1) : 0), of_row.zero + (of_row.zero ? at : 0)}};
  return of;
}
#define GROUP(at) group_at(x, q, source < 0 ? 0 : width, group, groups, out, at)

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void quantize_groups(
    const __global STORAGE(X_DTYPE) * x, ulong x_first, const __global int* index, ulong index_first,
    const __global int* row_ends, ulong row_ends_first, __global STORAGE(Q_DTYPE) * q, ulong q_first,
    __global STORAGE(SCALE_DTYPE) * scale, ulong scale_first, __global int* zero, ulong zero_first, long x_stride, long q_stride,
    long scale_stride, long zero_stride, int rows, int width,
    int group, int group_rows, int divisor, int experts, long rows_per_expert, long out_rows,
    const __global float* global_scales, ulong global_scales_first, RULES_ARGS) {
  __local int scratch[LANES];
  const int groups = (width - 1) / DIVISOR(group) + 1;
#if LANES == 1
  const long row = get_group_id(0);
#else
  const Place place = place_of_team(groups, out_rows);
  const long row = place.row;
#endif
  const long source = gathered_row(row, index ? index + index_first : 0, divisor, rows, row_ends ? row_ends + row_ends_first : 0,
                                   experts, rows_per_expert);
  long of_scale = group_rows == 1 ? row : row / DIVISOR(group_rows);
#if BY_EXPERT
  const long expert = row_ends ? expert_of_row(row, row_ends + row_ends_first, experts, rows_per_expert) : 0;
  if (global_scales) global_scale = global_scales[global_scales_first + expert];
  else of_scale = expert;
#endif
  const Rules rules = RULES;
  x += x_first + max(source, 0L) * x_stride;
  q += q_first + row * q_stride;
  const GroupScale out = {scale ? scale + scale_first + of_scale * scale_stride : scale,
                          zero ? zero + zero_first + row * zero_stride : zero};
#if LANES == 1
  float16 kept[KEPT_STEPS + 1];
  for (int first = 0; first < groups; first += AT_ONCE) {
    const int count = min(groups - first, AT_ONCE);
    Scale scales[AT_ONCE];
    for (int i = 0; i < count; ++i) scales[i] = find_scale(GROUP(first + i), rules, kept, scratch);
    for (int i = 0; i < count; ++i) store_codes(GROUP(first + i), scales[i], rules, kept);
  }
#else
  // A team past the last row, or of a row to leave alone, has no columns: all still meet at the barriers.
  quantize_group(GROUP(place.group), rules, scratch);
#endif
}

// Dynamic scales of groups in several rows: the bits of the largest magnitude, which order as the numbers do, then the
// scale itself.
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void largest_of_rows(
    const __global STORAGE(X_DTYPE) * x, ulong x_first, const __global int* index, ulong index_first,
    const __global int* row_ends, ulong row_ends_first, __global int* bits, ulong bits_first, long x_stride, long bits_stride,
    int rows, int width, int group, int group_rows, int divisor, int experts, long rows_per_expert, long out_rows) {
  __local int scratch[LANES];
  const Rules rules = {{0, 0, 0, 0}, RULE_RATIO_OVER_ROWS};
  const int groups = (width - 1) / DIVISOR(group) + 1;
  const Place place = place_of_team(groups, out_rows);
  const long row = place.row;
  const long source = gathered_row(row, index ? index + index_first : 0, divisor, rows, row_ends ? row_ends + row_ends_first : 0,
                                   experts, rows_per_expert);
  x += x_first + max(source, 0L) * x_stride;
  bits += bits_first + row / DIVISOR(group_rows) * bits_stride;
  const int begin = place.group * group, columns = source < 0 ? 0 : clamp(width - begin, 0, group);
  Largest largest = {0, 0};
  for (int step = 0; step < columns; step += STEP_COLUMNS) largest = larger(largest, LOAD_STEP(X_DTYPE)(x + begin, step, columns), rules);
  const int found = max_int_over_lanes(max_int_of_16(largest.all), scratch);
  if (TEAM_LANE == 0 && columns > 0) atomic_max(bits + place.group, found);
}

__kernel void scale_of_largest(__global float* scale, ulong scale_first, float largest, float least_amax, float most_amax,
                               float least_scale, int rule) {
  const Rules rules = {{0, 0, 0, 0}, rule, QUOTIENT_DIVIDE, 0, largest, least_amax, most_amax, least_scale, 1.0f};
  scale += scale_first + get_global_id(0);
  *scale = scale_of_ratio(as_int(*scale), rules).scale;
}
