// Row gather. One work-item a row on a CPU (LANES = 1), 64 and more on a GPU.
#include "kernels_cl/common/dtype.clh"
#include "kernels_cl/common/columns.clh"
#include "kernels_cl/common/rows.clh"

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void gather_rows(
    const __global STORAGE(X_DTYPE) * x, ulong x_first, const __global int* index, ulong index_first,
    const __global int* row_ends, ulong row_ends_first, __global STORAGE(OUT_DTYPE) * out, ulong out_first,
    long x_row_stride, long out_row_stride, int rows, int hidden, int divisor, int experts, long rows_per_expert) {
  const long row = get_group_id(0);
  if (row_ends && !row_is_valid(row, row_ends + row_ends_first, experts, rows_per_expert)) return;
  const int slot = index[index_first + row];
  if (slot < 0 || slot / DIVISOR(divisor) >= rows) return;
  const __global STORAGE(X_DTYPE)* from = x + x_first + (slot / DIVISOR(divisor)) * x_row_stride;
  __global STORAGE(OUT_DTYPE)* to = out + out_first + row * out_row_stride;
  FOR_EACH_STEP(first, hidden) STORE_STEP(OUT_DTYPE)(LOAD_STEP(X_DTYPE)(from, first, hidden), to, first, hidden);
}
