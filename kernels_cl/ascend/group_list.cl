// Group lists to row ends and back. One work-group does all: LANES work-items with a run of experts each, whose sums they tell
// each other. Loops beside barriers are uniform, which PoCL needs.
#include "kernels_cl/common/fault.clh"
#include "kernels_cl/common/lanes.clh"

enum { CUMSUM = 0, COUNTS = 1, PAIRS = 2 };
#define NONE INT_MAX

typedef struct {
  __global void* base;
  ulong first;
  int wide;  // i64 rather than i32
} List;

inline long load_entry(List list, long i) {
  return list.wide ? ((const __global long*)list.base)[list.first + i] : ((const __global int*)list.base)[list.first + i];
}
inline void store_entry(List list, long i, long value) {
  if (list.wide)
    ((__global long*)list.base)[list.first + i] = value;
  else
    ((__global int*)list.base)[list.first + i] = (int)value;
}
// Cut so that differences and sums of entries cannot overflow: what is cut is in fault whatever its value.
inline long load_cut(List list, long i, int rows) { return clamp(load_entry(list, i), (long)INT_MIN, rows + 1L); }

// Where the experts of this work-item's run start, as a sum over the runs before.
inline long sum_before(long run_sum, __local long* lane_sums) {
  const int lane = get_local_id(0);
  lane_sums[lane] = run_sum;
  LANES_BARRIER();
  long sum = 0;
  for (int other = 0; other < LANES; ++other) sum += other < lane ? lane_sums[other] : 0;
  LANES_BARRIER();
  return sum;
}

// The rows that entry i gives its expert; negative where it is in fault.
inline long entry_count(List list, int kind, int i, int rows) {
  if (kind == PAIRS) return load_cut(list, 2 * (long)i + 1, rows);
  const long value = load_cut(list, i, rows);
  return kind == COUNTS ? value : value - (i > 0 ? load_cut(list, i - 1, rows) : 0);
}
inline bool id_is_wrong(List list, int i, int experts) {
  const long id = load_entry(list, 2 * (long)i);
  return id < 0 || id >= experts || (i > 0 && id <= load_entry(list, 2 * (long)i - 2));
}

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void group_list_read(
    __global void* entries, ulong entries_first, __global int* row_ends, ulong row_ends_first, __global int* fault,
    ulong fault_first, int wide, int kind, int entry_count_max, int experts, int rows, int all_rows) {
  __local int scratch[LANES];
  __local long lane_sums[LANES];
  const int lane = get_local_id(0);
  const List list = {entries, entries_first, wide};
  row_ends += row_ends_first;

  // Counts by expert go through row_ends. Of pairs, those before the one that ends the list count.
  int end = entry_count_max;
  for (int first = 0; first < (kind == PAIRS ? entry_count_max : 0); first += LANES) {
    const int i = first + lane;
    if (i < entry_count_max && load_entry(list, 2 * (long)i) == 0 && load_entry(list, 2 * (long)i + 1) == 0) end = min(end, i);
  }
  end = min_int_over_lanes(end, scratch);
  for (int first = 0; first < experts; first += LANES)
    if (first + lane < experts) row_ends[first + lane] = 0;
#if LANES > 1
  barrier(CLK_GLOBAL_MEM_FENCE);
#endif
  int wrong = NONE;
  for (int first = 0; first < end; first += LANES) {
    const int i = first + lane;
    if (i < end) {
      const bool id_wrong = kind == PAIRS && id_is_wrong(list, i, experts);
      const long count = entry_count(list, kind, i, rows);
      if (id_wrong || count < 0)
        wrong = min(wrong, i);
      else
        row_ends[kind == PAIRS ? (int)load_entry(list, 2 * (long)i) : i] = (int)min(count, rows + 1L);
    }
  }
  wrong = min_int_over_lanes(wrong, scratch);
#if LANES > 1
  barrier(CLK_GLOBAL_MEM_FENCE);
#endif

  const int run = (experts + LANES - 1) / LANES;
  long sum = 0;
  for (int i = 0; i < run; ++i) sum += lane * run + i < experts ? row_ends[lane * run + i] : 0;
  long row_end = sum_before(sum, lane_sums);
  int over = NONE;
  for (int i = 0; i < run; ++i) {
    const int expert = lane * run + i;
    if (expert < experts) {
      row_end += row_ends[expert];
      if (row_end > rows) over = min(over, expert);
      row_ends[expert] = (int)min(row_end, (long)rows);
    }
  }
  over = min_int_over_lanes(over, scratch);
  if (fault) fault += fault_first;
  if (lane == 0 && wrong != NONE) {
    if (kind == PAIRS && id_is_wrong(list, wrong, experts))
      set_fault(fault, GROUP_ID_OUT_OF_ORDER, wrong, convert_int_sat(load_entry(list, 2 * (long)wrong)));
    else
      set_fault(fault, GROUP_COUNT_NEGATIVE, wrong, convert_int_sat(entry_count(list, kind, wrong, rows)));
  } else if (lane == 0 && over != NONE) {
    set_fault(fault, GROUP_SUM_TOO_LARGE, over, rows);
  } else if (lane == LANES - 1 && wrong == NONE && over == NONE && all_rows && row_end != rows) {
    set_fault(fault, GROUP_SUM_TOO_SMALL, (int)row_end, rows);
  }
}

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void group_list_write(
    const __global int* source, ulong source_first, __global void* entries, ulong entries_first, int wide, int kind,
    int entry_count_max, int experts, int first_expert, int cumulative) {
  __local long lane_sums[LANES];
  const int lane = get_local_id(0);
  const List list = {entries, entries_first, wide};
  source += source_first;

  // A run's sum: of rows for the cumulative list, of experts with rows for the pairs.
  const int run = (experts + LANES - 1) / LANES;
  long sum = 0;
  for (int i = 0; i < run; ++i) {
    const int e = lane * run + i;
    if (e < experts) {
      const int count = source[e] - (cumulative && e > 0 ? source[e - 1] : 0);
      sum += kind == PAIRS ? count != 0 : count;
    }
  }
  long total = sum_before(sum, lane_sums);
  for (int i = 0; i < run; ++i) {
    const int e = lane * run + i;
    if (e < experts) {
      const int count = source[e] - (cumulative && e > 0 ? source[e - 1] : 0);
      if (kind == PAIRS) {
        if (count != 0) {
          store_entry(list, 2 * total, first_expert + e);
          store_entry(list, 2 * total + 1, count);
        }
        total += count != 0;
      } else {
        total += count;
        store_entry(list, e, kind == CUMSUM ? total : count);
      }
    }
  }
  if (kind == PAIRS && lane == LANES - 1 && total < entry_count_max) {
    store_entry(list, 2 * total, 0);
    store_entry(list, 2 * total + 1, 0);
  }
}
