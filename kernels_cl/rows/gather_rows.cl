// Gathers rows by an index. LANES work-items per row: 1 on a CPU, 64 or more on a GPU.
#include "kernels_cl/common/columns.clh"
#include "kernels_cl/common/dtype.clh"
#include "kernels_cl/common/rows.clh"
#include "kernels_cl/rows/gather_rows_args.h"

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void gather_rows(const __global STORAGE(X_DTYPE)* x,
                                                                             const __global int* index,
                                                                             const __global int* row_ends,
                                                                             __global STORAGE(OUT_DTYPE)* out,
                                                                             const gather_rows_args given) {
  const gather_rows_args args = given;
  const long row = get_group_id(0);
  if (row_ends && !row_is_valid(row, row_ends + args.row_ends_first, args.experts, args.rows_per_expert)) return;
  const int slot = index[args.index_first + row];
  if (slot < 0 || slot / DIVISOR(args.divisor) >= args.rows) return;
  const __global STORAGE(X_DTYPE)* from = x + args.x_first + (slot / DIVISOR(args.divisor)) * args.x_stride;
  __global STORAGE(OUT_DTYPE)* to = out + args.out_first + row * args.out_stride;
  FOR_EACH_STEP (first, args.hidden)
    OF(store_step, OUT_DTYPE)(OF(load_step, X_DTYPE)(from, first, args.hidden), to, first, args.hidden);
}
