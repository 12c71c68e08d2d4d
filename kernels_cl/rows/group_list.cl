// Converts group lists to row ends and back, in one work-group. Each of its LANES work-items has a run of experts; the
// work-items exchange the sums of their runs. Loops beside barriers are uniform, which PoCL needs.
#include "kernels_cl/rows/group_list_args.h"
#include "kernels_cl/common/fault.clh"
#include "kernels_cl/common/lanes.clh"

enum { NONE = INT_MAX };

typedef struct {
  __global void* base;
  ulong first;
  int wide;  // i64 rather than i32
} List;

inline long load_entry(List of, long i) {
  return of.wide ? ((const __global long*)of.base)[of.first + i] : ((const __global int*)of.base)[of.first + i];
}
inline void store_entry(List of, long i, long value) {
  if (of.wide)
    ((__global long*)of.base)[of.first + i] = value;
  else
    ((__global int*)of.base)[of.first + i] = (int)value;
}
// Clamps an entry, so that differences and sums of entries cannot overflow. An entry outside these bounds is in fault.
inline long load_cut(List of, long i, int rows) { return clamp(load_entry(of, i), (long)INT_MIN, rows + 1L); }

// Exclusive prefix sum over the work-items: the sum of all runs before this work-item's.
inline long sum_before(long run_sum, __local long* lane_sums) {
  const int lane = get_local_id(0);
  lane_sums[lane] = run_sum;
  lanes_barrier();
  long sum = 0;
  for (int other = 0; other < LANES; ++other) sum += other < lane ? lane_sums[other] : 0;
  lanes_barrier();
  return sum;
}

// The number of rows that entry i gives its expert. A negative number is a fault.
inline long entry_count(List of, int kind, int i, int rows) {
  if (kind == GROUP_LIST_PAIRS) return load_cut(of, 2 * (long)i + 1, rows);
  const long value = load_cut(of, i, rows);
  return kind == GROUP_LIST_COUNTS ? value : value - (i > 0 ? load_cut(of, i - 1, rows) : 0);
}
inline bool id_is_wrong(List of, int i, int experts) {
  const long id = load_entry(of, 2 * (long)i);
  return id < 0 || id >= experts || (i > 0 && id <= load_entry(of, 2 * (long)i - 2));
}

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void group_list_read(__global void* list,
                                                                                 __global int* row_ends,
                                                                                 __global int* fault,
                                                                                 const group_list_read_args given) {
  const group_list_read_args args = given;
  __local int scratch[LANES];
  __local long lane_sums[LANES];
  const int lane = get_local_id(0);
  const List entries = {list, args.list_first, args.wide};
  row_ends += args.row_ends_first;
  fault = fault_word(fault, args.fault_first);

  // row_ends first holds the counts by expert. `end`: a pair (0, 0) ends a list of pairs.
  int end = args.entries;
  for (int first = 0; first < (args.kind == GROUP_LIST_PAIRS ? args.entries : 0); first += LANES) {
    const int i = first + lane;
    if (i < args.entries && load_entry(entries, 2 * (long)i) == 0 && load_entry(entries, 2 * (long)i + 1) == 0)
      end = min(end, i);
  }
  end = min_int_over_lanes(end, scratch);
  for (int first = 0; first < args.experts; first += LANES)
    if (first + lane < args.experts) row_ends[first + lane] = 0;
#if LANES > 1
  barrier(CLK_GLOBAL_MEM_FENCE);
#endif
  int wrong = NONE, large = NONE;
  for (int first = 0; first < end; first += LANES) {
    const int i = first + lane;
    if (i < end) {
      const bool id_wrong = args.kind == GROUP_LIST_PAIRS && id_is_wrong(entries, i, args.experts);
      const long count = entry_count(entries, args.kind, i, args.rows);
      const int expert = args.kind == GROUP_LIST_PAIRS ? (int)load_entry(entries, 2 * (long)i) : i;
      if (id_wrong || count < 0)
        wrong = min(wrong, i);
      else
        row_ends[expert] = (int)min(count, (long)args.most);
      if (!id_wrong && count > args.most) large = min(large, i);
    }
  }
  wrong = min_int_over_lanes(wrong, scratch);
  large = min_int_over_lanes(large, scratch);
#if LANES > 1
  barrier(CLK_GLOBAL_MEM_FENCE);
#endif

  const int run = (args.experts + LANES - 1) / LANES;
  long sum = 0;
  for (int i = 0; i < run; ++i) sum += lane * run + i < args.experts ? row_ends[lane * run + i] : 0;
  long row_end = sum_before(sum, lane_sums);
  int over = NONE;
  for (int i = 0; i < run; ++i) {
    const int expert = lane * run + i;
    if (expert < args.experts) {
      row_end += row_ends[expert];
      if (row_end > args.rows) over = min(over, expert);
      row_ends[expert] = (int)min(row_end, (long)args.rows);
    }
  }
  over = min_int_over_lanes(over, scratch);
  if (lane == 0 && wrong != NONE) {
    if (args.kind == GROUP_LIST_PAIRS && id_is_wrong(entries, wrong, args.experts))
      set_fault(fault, GROUP_ID_OUT_OF_ORDER, wrong, convert_int_sat(load_entry(entries, 2 * (long)wrong)));
    else
      set_fault(fault, GROUP_COUNT_NEGATIVE, wrong, convert_int_sat(entry_count(entries, args.kind, wrong, args.rows)));
  } else if (lane == 0 && large != NONE) {
    set_fault(fault, GROUP_TOO_LARGE, large, convert_int_sat(entry_count(entries, args.kind, large, args.rows)));
  } else if (lane == 0 && over != NONE) {
    set_fault(fault, GROUP_SUM_TOO_LARGE, over, args.rows);
  } else if (lane == LANES - 1 && wrong == NONE && large == NONE && over == NONE && args.all_rows &&
             row_end != args.rows) {
    set_fault(fault, GROUP_SUM_TOO_SMALL, (int)row_end, args.rows);
  }
}

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void group_list_write(const __global int* source,
                                                                                  __global void* list,
                                                                                  const group_list_write_args given) {
  const group_list_write_args args = given;
  __local long lane_sums[LANES];
  const int lane = get_local_id(0);
  const List entries = {list, args.list_first, args.wide};
  source += args.source_first;

  // The sum of a run: experts with rows for a list of pairs, else rows.
  const int run = (args.experts + LANES - 1) / LANES;
  long sum = 0;
  for (int i = 0; i < run; ++i) {
    const int e = lane * run + i;
    if (e < args.experts) {
      const int count = source[e] - (args.cumulative && e > 0 ? source[e - 1] : 0);
      sum += args.kind == GROUP_LIST_PAIRS ? count != 0 : count;
    }
  }
  long total = sum_before(sum, lane_sums);
  for (int i = 0; i < run; ++i) {
    const int e = lane * run + i;
    if (e < args.experts) {
      const int count = source[e] - (args.cumulative && e > 0 ? source[e - 1] : 0);
      if (args.kind == GROUP_LIST_PAIRS) {
        if (count != 0) {
          store_entry(entries, 2 * total, args.first_expert + e);
          store_entry(entries, 2 * total + 1, count);
        }
        total += count != 0;
      } else {
        total += count;
        store_entry(entries, e, args.kind == GROUP_LIST_CUMSUM ? total : count);
      }
    }
  }
  if (args.kind == GROUP_LIST_PAIRS && lane == LANES - 1 && total < args.entries) {
    store_entry(entries, 2 * total, 0);
    store_entry(entries, 2 * total + 1, 0);
  }
}
