// Stable counting sort of slots by expert. The slots are cut into chunks, one for each work-group. LANES = 1 on a CPU: one
// work-item walks its chunk with a table of its own; 64 on a GPU: tiles of LANES slots, ranked by comparing within the tile.
// Few slots are one chunk and one kernel; many take three: histogram of each chunk, scan over the chunks, scatter.
//
// A pass of a sort by wide keys takes a digit of the key for the expert, and the slots in the order of the pass before.
#include "kernels_cl/lib/fault.clh"
#include "kernels_cl/lib/lanes.clh"

#define NO_SLOT INT_MAX

typedef struct {
  const __global int* ids;
  const __global int* order;  // or null: ascending
  int slots, first_expert, experts;
  int lowest_id, highest_id;  // others are in fault
  int shift, mask;            // the digit that is the expert; of ids all of it
  int capacity;               // rows_per_expert, 0 in the standard layout
  int may_drop;               // more rows than that are no fault
} Problem;

inline int slot_at(Problem p, int place) { return p.order ? p.order[place] : place; }
// -1 where the slot has no expert here.
inline int local_expert(Problem p, int slot) {
  const int id = (int)((uint)p.ids[slot] >> p.shift) & p.mask;
  return id >= p.first_expert && id < p.first_expert + p.experts ? id - p.first_expert : -1;
}
inline bool id_is_wrong(Problem p, int slot) { return p.ids[slot] < p.lowest_id || p.ids[slot] > p.highest_id; }
inline int row_limit(Problem p, int expert) { return p.capacity == 0 ? INT_MAX : (expert + 1) * p.capacity; }

// Counts a chunk's slots by expert. Returns whether this work-item met a wrong id.
inline bool count_chunk(Problem p, int begin, int end, __local int* counts) {
  bool wrong = false;
  for (int e = get_local_id(0); e < p.experts; e += LANES) counts[e] = 0;
  LANES_BARRIER();
  for (int place = begin + (int)get_local_id(0); place < end; place += LANES) {
    const int slot = slot_at(p, place);
    const int expert = local_expert(p, slot);
    wrong |= id_is_wrong(p, slot);
#if LANES == 1
    if (expert >= 0) ++counts[expert];
#else
    if (expert >= 0) atomic_inc(&counts[expert]);
#endif
  }
  LANES_BARRIER();
  return wrong;
}

// Turns the counts of all slots into the first row of each expert; writes row ends and counts where asked for. Each lane has
// a run of experts.
inline void counts_to_first_rows(Problem p, __local int* counts, __local int* lane_sums, __global int* row_ends,
                                 __global int* slot_counts) {
  const int lane = get_local_id(0);
  const int run = (p.experts + LANES - 1) / LANES;
  const int begin = min(lane * run, p.experts), end = min(begin + run, p.experts);
  int sum = 0;
  for (int e = begin; e < end; ++e) sum += p.capacity == 0 ? counts[e] : min(counts[e], p.capacity);
  lane_sums[lane] = sum;
  LANES_BARRIER();
  int row_end = 0;
  for (int other = 0; other < lane; ++other) row_end += lane_sums[other];
  for (int e = begin; e < end; ++e) {
    const int first_row = p.capacity == 0 ? row_end : e * p.capacity;
    row_end += p.capacity == 0 ? counts[e] : min(counts[e], p.capacity);
    if (row_ends) row_ends[e] = row_end;
    if (slot_counts) slot_counts[e] = counts[e];
    counts[e] = first_row;
  }
  LANES_BARRIER();
}

// Places a chunk's slots. next_rows[e] is the row of the chunk's first slot of expert e. Returns the lowest slot in fault.
inline int scatter_chunk(Problem p, int begin, int end, __local int* next_rows, __local int* tile, __global int* sorted_slots,
                         __global int* slot_rows, __local int* scratch) {
  int fault = NO_SLOT;
  for (int first = begin; first < end; first += LANES) {
    const int place = first + get_local_id(0);
    const int slot = place < end ? slot_at(p, place) : NO_SLOT;
    const int expert = place < end ? local_expert(p, slot) : -1;
    int row = -1;
#if LANES == 1
    if (expert >= 0) row = next_rows[expert]++;
#else
    tile[get_local_id(0)] = expert;
    barrier(CLK_LOCAL_MEM_FENCE);
    int before = 0, after = 0;
    for (int other = 0; other < LANES; ++other) {
      const int same = tile[other] == expert;
      before += same && other < (int)get_local_id(0);
      after += same && other > (int)get_local_id(0);
    }
    if (expert >= 0) row = next_rows[expert] + before;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (expert >= 0 && after == 0) next_rows[expert] = row + 1;
#endif
    if (place < end) {
      const bool over = expert >= 0 && row >= row_limit(p, expert);
      if (over) row = -1;
      if (row >= 0) sorted_slots[row] = slot;
      if (slot_rows) slot_rows[slot] = row;
      if ((over && !p.may_drop) || id_is_wrong(p, slot)) fault = min(fault, slot);
    }
  }
  return min_int_over_lanes(fault, scratch);
}

inline void report(Problem p, int slot, __global int* fault) {
  if (get_local_id(0) != 0 || slot == NO_SLOT) return;
  const int of_ids = p.lowest_id < 0 ? EXPERT_ID_OUT_OF_RANGE : KEY_OUT_OF_RANGE;
  set_fault(fault, id_is_wrong(p, slot) ? of_ids : EXPERT_OVER_CAPACITY, slot, p.ids[slot]);
}

#define AT(p, first) ((p) ? (p) + (first) : (p))
#define PROBLEM_ARGS                                                                                                \
  const __global int *ids, ulong ids_first, const __global int *order, ulong order_first, int slots, int first_expert, \
      int experts, int lowest_id, int highest_id, int shift, int mask, int capacity, int may_drop
#define PROBLEM                                                                                                     \
  {AT(ids, ids_first), AT(order, order_first), slots, first_expert, experts, lowest_id, highest_id, shift, mask,     \
   capacity, may_drop}
#define OUT_ARGS                                                                                                    \
  __global int *row_ends, ulong row_ends_first, __global int *slot_counts, ulong slot_counts_first,                 \
      __global int *sorted_slots, ulong sorted_first, __global int *slot_rows, ulong slot_rows_first,               \
      __global int *fault, ulong fault_first

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void expert_sort_one_chunk(PROBLEM_ARGS, OUT_ARGS,
                                                                                      __local int* rows) {
  __local int scratch[LANES], tile[LANES];
  const Problem p = PROBLEM;
  count_chunk(p, 0, slots, rows);
  counts_to_first_rows(p, rows, tile, AT(row_ends, row_ends_first), AT(slot_counts, slot_counts_first));
  report(p, scatter_chunk(p, 0, slots, rows, tile, sorted_slots + sorted_first, AT(slot_rows, slot_rows_first), scratch),
         AT(fault, fault_first));
}

// What the three kernels hand on.
typedef struct {
  __global int* counts;        // [chunks][experts] slots; after the scan those in earlier chunks
  __global int* wrong_ids;     // [chunks] whether there is one
  __global int* totals;        // [experts]
  __global int* over_capacity; // [experts] the first chunk that goes over, or NO_CHUNK
} Table;
#define NO_CHUNK INT_MAX

inline Table table_at(__global int* scratch, int chunks, int experts) {
  const Table t = {scratch, scratch + (long)chunks * experts, scratch + (long)chunks * (experts + 1), scratch + (long)chunks * (experts + 1) + experts};
  return t;
}

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void expert_sort_histogram(
    PROBLEM_ARGS, __global int* table, ulong table_first, int chunk_slots, __local int* counts) {
  __local int scratch[LANES];
  const Problem p = PROBLEM;
  const int chunk = get_group_id(0);
  const Table t = table_at(table + table_first, get_num_groups(0), experts);
  const int begin = chunk * chunk_slots, end = min(slots - begin, chunk_slots) + begin;
  const int all_right = min_int_over_lanes(count_chunk(p, begin, end, counts) ? 0 : 1, scratch);
  for (int e = get_local_id(0); e < experts; e += LANES) t.counts[(long)chunk * experts + e] = counts[e];
  if (get_local_id(0) == 0) t.wrong_ids[chunk] = !all_right;
}

// One work-group an expert; each lane has a run of chunks.
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void expert_sort_scan(__global int* table, ulong table_first,
                                                                                 int chunks, int capacity,
                                                                                 int may_drop) {
  __local int scratch[LANES], lane_sums[LANES];
  const int expert = get_group_id(0), experts = get_num_groups(0), lane = get_local_id(0);
  const Table t = table_at(table + table_first, chunks, experts);
  const int run = (chunks + LANES - 1) / LANES;
  const int begin = min(lane * run, chunks), end = min(begin + run, chunks);
  int sum = 0;
  for (int chunk = begin; chunk < end; ++chunk) sum += t.counts[(long)chunk * experts + expert];
  lane_sums[lane] = sum;
  LANES_BARRIER();
  int before = 0, over = NO_CHUNK;
  for (int other = 0; other < lane; ++other) before += lane_sums[other];
  for (int chunk = begin; chunk < end; ++chunk) {
    const int count = t.counts[(long)chunk * experts + expert];
    t.counts[(long)chunk * experts + expert] = before;
    before += count;
    if (capacity > 0 && !may_drop && count > 0 && before > capacity) over = min(over, chunk);
  }
  over = min_int_over_lanes(over, scratch);
  if (lane == 0) t.over_capacity[expert] = over;
  if (lane == LANES - 1) t.totals[expert] = before;
}

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void expert_sort_scatter(
    PROBLEM_ARGS, __global int* table, ulong table_first, OUT_ARGS, int chunk_slots, __local int* next_rows) {
  __local int scratch[LANES], tile[LANES];
  const Problem p = PROBLEM;
  const int chunk = get_group_id(0), chunks = get_num_groups(0);
  const Table t = table_at(table + table_first, chunks, experts);
  const int begin = chunk * chunk_slots, end = min(slots - begin, chunk_slots) + begin;
  // The chunk with the lowest slot in fault reports it.
  int fault_chunk = NO_CHUNK;
  for (int e = get_local_id(0); e < experts; e += LANES) {
    next_rows[e] = t.totals[e];
    fault_chunk = min(fault_chunk, t.over_capacity[e]);
  }
  for (int c = get_local_id(0); c < chunks; c += LANES) fault_chunk = min(fault_chunk, t.wrong_ids[c] ? c : NO_CHUNK);
  fault_chunk = min_int_over_lanes(fault_chunk, scratch);
  counts_to_first_rows(p, next_rows, tile, chunk == 0 ? AT(row_ends, row_ends_first) : 0,
                       chunk == 0 ? AT(slot_counts, slot_counts_first) : 0);
  for (int e = get_local_id(0); e < experts; e += LANES) next_rows[e] += t.counts[(long)chunk * experts + e];
  LANES_BARRIER();
  const int slot = scatter_chunk(p, begin, end, next_rows, tile, sorted_slots + sorted_first, AT(slot_rows, slot_rows_first), scratch);
  if (chunk == fault_chunk) report(p, slot, AT(fault, fault_first));
}
