// Weight packing. A work-group fills one panel for 64 values of k: LANES = 1 on a CPU (one work-item reads along k), 64 on
// a GPU (neighbouring lanes write neighbouring columns).
#include "kernels_cl/lib/dtype.clh"

#define PANEL 64
#define K_BLOCK 64

// Source row r is column first_column + r of the packed expert; columns in [zero_first, panels * PANEL) become zero.
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void pack_weights(
    const __global STORAGE(SOURCE_DTYPE) * source, ulong source_first, __global STORAGE(PACKED_DTYPE) * packed,
    ulong packed_first, long row_stride, long k_stride, int rows, int k, int first_column, int zero_first) {
  const int k_begin = get_group_id(0) * K_BLOCK, k_end = min(k_begin + K_BLOCK, k);
  const long panel = first_column / PANEL + get_group_id(1);
  __global STORAGE(PACKED_DTYPE)* to = packed + packed_first + panel * k * PANEL;
  for (int column = get_local_id(0); column < PANEL; column += LANES) {
    const int row = panel * PANEL + column - first_column;
    if (row >= 0 && row < rows) {
      const __global STORAGE(SOURCE_DTYPE)* from = source + source_first + row * row_stride;
      for (int i = k_begin; i < k_end; ++i)
        STORE(PACKED_DTYPE)(LOAD(SOURCE_DTYPE)(from, i * k_stride), to, (ulong)i * PANEL + column);
    } else if (row >= zero_first - first_column) {
      for (int i = k_begin; i < k_end; ++i) STORE(PACKED_DTYPE)(0.0f, to, (ulong)i * PANEL + column);
    }
  }
}
