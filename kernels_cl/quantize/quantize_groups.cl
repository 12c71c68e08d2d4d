// Quantizes groups of neighbouring columns, each to codes with a scale, or to the numbers that the codes stand for. On
// a CPU a work-item walks the groups of a row. On a GPU each team of a work-group takes one group of one row.
#include "kernels_cl/quantize/quantize_group.clh"
#include "kernels_cl/common/rows.clh"
#include "kernels_cl/quantize/quantize_groups_args.h"

// Number of groups whose scales a CPU's work-item finds before it makes their codes. A group's codes wait for its
// scale, which takes as long to find as the codes take to make.
enum { AT_ONCE = 16 };

// A group of a row of the result.
typedef struct {
  long row;
  int group;  // the number of groups if the team has none, being past the last row
} Place;
INLINE Place place_of_team(int groups, long rows) {
  const uint unit = (uint)get_group_id(0) * TEAMS + team_number(), row = unit / (uint)DIVISOR(groups);
  const bool exists = row < rows;
  const Place place = {exists ? row : 0, exists ? (int)(unit - row * groups) : groups};
  return place;
}

INLINE Group group_at(const __global STORAGE(X_DTYPE)* x, __global STORAGE(Q_DTYPE)* q, int width, int group,
                      int groups, GroupScale of_row, int at) {
  const int begin = min(at, groups) * group;
  const Group of = {x + begin,
                    q + begin,
                    clamp(width - begin, 0, group),
                    {of_row.scale + (of_row.scale ? min(at, groups - 1) : 0), of_row.zero + (of_row.zero ? at : 0)}};
  return of;
}
// The row of x from which a row of the result is made; negative: none.
INLINE long source_of(long row, const __global int* index, const __global int* row_ends, quantize_groups_args args) {
  return gathered_row(row, index ? index + args.index_first : 0, args.divisor, args.rows, row_ends, args.experts,
                      args.rows_per_expert);
}
INLINE int groups_of(quantize_groups_args args) { return (args.width - 1) / DIVISOR(args.group) + 1; }

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void quantize_groups(
    const __global STORAGE(X_DTYPE)* x, const __global int* index, const __global int* row_ends,
    __global STORAGE(Q_DTYPE)* q, __global STORAGE(SCALE_DTYPE)* scale, __global int* zero,
    const __global float* global_scales, const quantize_groups_args given) {
  const quantize_groups_args args = given;
  __local int scratch[LANES];
  const int groups = groups_of(args);
#if LANES == 1
  const long row = get_group_id(0);
#else
  const Place place = place_of_team(groups, args.out_rows);
  const long row = place.row;
#endif
  if (row_ends) row_ends += args.row_ends_first;
  const long source = source_of(row, index, row_ends, args);
  long of_scale = args.group_rows == 1 ? row : row / DIVISOR(args.group_rows);
  Rules rules = known_rules(args.rules);
#if BY_EXPERT
  const long expert = row_ends ? expert_of_row(row, row_ends, args.experts, args.rows_per_expert) : 0;
  if (global_scales)
    rules.global_scale = global_scales[args.global_scales_first + expert];
  else
    of_scale = expert;
#endif
  x += args.x_first + max(source, 0L) * args.x_stride;
  q += args.q_first + row * args.q_stride;
  const int width = source < 0 ? 0 : args.width, group = args.group;
  const GroupScale out = {scale ? scale + args.scale_first + of_scale * args.scale_stride : scale,
                          zero ? zero + args.zero_first + row * args.zero_stride : zero};
#if LANES == 1
  float16 kept[KEPT_STEPS + 1];
  for (int first = 0; first < groups; first += AT_ONCE) {
    const int count = min(groups - first, (int)AT_ONCE);
    Scale scales[AT_ONCE];
    for (int i = 0; i < count; ++i)
      scales[i] = find_scale(group_at(x, q, width, group, groups, out, first + i), rules, kept, scratch);
    for (int i = 0; i < count; ++i)
      store_codes(group_at(x, q, width, group, groups, out, first + i), scales[i], rules, kept);
  }
#else
  // A team past the last row, or of a row that stays untouched, has no columns, but still reaches all barriers.
  quantize_group(group_at(x, q, width, group, groups, out, place.group), rules, scratch);
#endif
}

// Dynamic scales of groups that span several rows. This kernel finds the bits of the largest magnitude, which have the
// order of the magnitudes. scale_of_largest then turns them into the scale.
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void largest_of_rows(const __global STORAGE(X_DTYPE)* x,
                                                                                 const __global int* index,
                                                                                 const __global int* row_ends,
                                                                                 __global int* scale,
                                                                                 const quantize_groups_args given) {
  const quantize_groups_args args = given;
  __local int scratch[LANES];
  const Rules rules = {{0, 0, 0, 0}, RULE_RATIO_OVER_ROWS};
  const Place place = place_of_team(groups_of(args), args.out_rows);
  if (row_ends) row_ends += args.row_ends_first;
  const long row = place.row, source = source_of(row, index, row_ends, args);
  x += args.x_first + max(source, 0L) * args.x_stride;
  scale += args.scale_first + row / DIVISOR(args.group_rows) * args.scale_stride;
  const int begin = place.group * args.group, columns = source < 0 ? 0 : clamp(args.width - begin, 0, args.group);
  Largest largest = {0, 0};
  for (int step = 0; step < columns; step += STEP_COLUMNS)
    largest = larger(largest, OF(load_step, X_DTYPE)(x + begin, step, columns), rules);
  const int found = max_int_over_lanes(max_int_of_16(largest.all), scratch);
  if (team_lane() == 0 && columns > 0) atomic_max(scale + place.group, found);
}

__kernel void scale_of_largest(__global float* scale, const quantize_groups_args given) {
  const quantize_groups_args args = given;
  scale += args.scale_first + get_global_id(0);
  *scale = scale_of_ratio(as_int(*scale), known_rules(args.rules)).scale;
}
