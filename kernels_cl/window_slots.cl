// Row indices of fixed-capacity windows: one work-item an element.

// The first expert of a rank; the E % R first ranks own one expert more.
inline int first_expert_of(int rank, int experts, int ranks) {
  return rank * (experts / ranks) + min(rank, experts % ranks);
}
// Rows before expert `expert` of those sorted by expert.
inline int rows_before(const __global int* row_ends, int expert) { return expert == 0 ? 0 : row_ends[expert - 1]; }

// The first expert whose row end is past the row.
inline int expert_of_row(const __global int* row_ends, int experts, int row) {
  int low = 0, high = experts;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (row_ends[middle] > row)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

__kernel void window_slots_outgoing(const __global int* row_ends, ulong row_ends_first, const __global int* sorted_slots,
                                    ulong sorted_first, __global int* slots, ulong slots_first, int count, int experts,
                                    int ranks, int capacity) {
  const int i = get_global_id(0);
  if (i >= count) return;
  row_ends += row_ends_first;
  const int rank = i / capacity;
  const int row = rows_before(row_ends, first_expert_of(rank, experts, ranks)) + i % capacity;
  const bool filled = row < rows_before(row_ends, first_expert_of(rank + 1, experts, ranks));
  slots[slots_first + i] = filled ? sorted_slots[sorted_first + row] : -1;
}

__kernel void window_slots_incoming(const __global int* row_ends, ulong row_ends_first, __global int* ids, ulong ids_first,
                                    int count, int experts, int ranks, int capacity, int rank) {
  const int i = get_global_id(0);
  if (i >= count) return;
  row_ends += row_ends_first + (long)(i / capacity) * experts;
  const int first = first_expert_of(rank, experts, ranks), end = first_expert_of(rank + 1, experts, ranks);
  const int row = rows_before(row_ends, first) + i % capacity;
  ids[ids_first + i] = row < rows_before(row_ends, end) ? expert_of_row(row_ends, experts, row) - first : -1;
}

__kernel void window_slots_home(const __global int* row_ends, ulong row_ends_first, const __global int* slot_rows,
                                ulong slot_rows_first, __global int* rows, ulong rows_first, int count, int experts,
                                int ranks, int capacity) {
  const int slot = get_global_id(0);
  if (slot >= count) return;
  row_ends += row_ends_first;
  const int row = slot_rows[slot_rows_first + slot];
  int home = -1;
  if (row >= 0) {
    const int expert = expert_of_row(row_ends, experts, row), more = experts % ranks, base = experts / ranks;
    const int rank = expert < more * (base + 1) ? expert / (base + 1) : more + (expert - more * (base + 1)) / base;
    const int in_slab = row - rows_before(row_ends, first_expert_of(rank, experts, ranks));
    if (in_slab < capacity) home = rank * capacity + in_slab;
  }
  rows[rows_first + slot] = home;
}
