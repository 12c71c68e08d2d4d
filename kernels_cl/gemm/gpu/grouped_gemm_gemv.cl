// Grouped GEMM of few rows for a GPU: bound by reading the weights, which it does once. A work-group owns the 64 columns
// of one panel for up to TILE_ROWS rows of one expert; 16 work-items read a panel's row of 64 columns, 4 each, and
// SLICES of them share K. The slices' sums are added in a fixed order, so a row's result does not depend on the others.
#include "kernels_cl/gemm/grouped_gemm.clh"

#define QUADS (PANEL / 4)
#define EACH_ROW(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)
#if TILE_ROWS != 8
#error "written for 8 rows"
#endif

// A row whose index is out of range computes on row 0 and is not stored.
#define BEGIN_ROW(r)                                                                                          \
  Element4 acc##r = 0;                                                                                        \
  const long source##r = max(0L, source_row(tile.first + min(r, tile.count - 1), a_index, index_divisor, a_rows)); \
  const __global STORAGE(A_DTYPE)* a##r = a + source##r * a_stride;                                            \
  const __global STORAGE(A_SCALE_DTYPE)* scale##r = a_scale + source##r * a_scale_stride;
#define STEP_ROW(r) \
  if (r < tile.count) acc##r = MULTIPLY_ADD(activation(a##r, scale##r, i), w, acc##r);
#define STEP4_ROW(r)                                                 \
  if (r < tile.count) {                                              \
    acc##r = MULTIPLY_ADD(activation(a##r, scale##r, i), w0, acc##r);              \
    acc##r = MULTIPLY_ADD(activation(a##r, scale##r, i + SLICES), w1, acc##r);     \
    acc##r = MULTIPLY_ADD(activation(a##r, scale##r, i + 2 * SLICES), w2, acc##r); \
    acc##r = MULTIPLY_ADD(activation(a##r, scale##r, i + 3 * SLICES), w3, acc##r); \
  }
#define END_ROW(r) \
  if (r < tile.count) partial[slice][r][quad] = acc##r;

__kernel __attribute__((reqd_work_group_size(QUADS * SLICES, 1, 1))) void grouped_gemm_gemv(GROUPED_GEMM_PARAMETERS) {
  __local Element4 partial[SLICES][TILE_ROWS][QUADS];
  OFFSET_POINTERS;
  const RowTile tile = find_row_tile(get_group_id(1), TILE_ROWS, row_ends, rows, first_expert, experts, rows_per_expert);
  if (tile.count == 0) return;
  const int quad = get_local_id(0) % QUADS, slice = get_local_id(0) / QUADS;
  const __global STORAGE(W_DTYPE)* panel = PANEL_OF(tile.expert, get_group_id(0));
  const Groups groups_of = GROUPS_OF(tile.expert, get_group_id(0));
  ENTER_K_WINDOW(panel, tile.expert)

  EACH_ROW(BEGIN_ROW)
  // Every loop has the same trip count in all work-items: PoCL 3.1 runs others wrong beside a barrier.
  int begin = 0;
  for (; begin + 4 * SLICES <= k; begin += 4 * SLICES) {
    const int i = begin + slice;
    const Element4 w0 = weight4(panel, &groups_of, i, quad * 4), w1 = weight4(panel, &groups_of, i + SLICES, quad * 4);
    const Element4 w2 = weight4(panel, &groups_of, i + 2 * SLICES, quad * 4),
                   w3 = weight4(panel, &groups_of, i + 3 * SLICES, quad * 4);
    EACH_ROW(STEP4_ROW)
  }
  for (; begin < k; begin += SLICES) {
    const int i = begin + slice;
    if (i < k) {
      const Element4 w = weight4(panel, &groups_of, i, quad * 4);
      EACH_ROW(STEP_ROW)
    }
  }
  EACH_ROW(END_ROW)
  barrier(CLK_LOCAL_MEM_FENCE);

  const int first_column = get_group_id(0) * PANEL;
  const Epilogue epilogue = EPILOGUE_OF(tile.expert);
  for (int first_item = 0; first_item < tile.count * PANEL; first_item += QUADS * SLICES) {
    const int item = first_item + get_local_id(0), row = item / PANEL, column = first_column + item % PANEL;
    if (row < tile.count && column < n) {
      const long source = source_row(tile.first + row, a_index, index_divisor, a_rows);
      Element sum = 0;
      for (int s = 0; s < SLICES; ++s) sum += ((const __local Element*)partial[s][row])[item % PANEL];
      if (source >= 0)
        store_sum(sum, ROW_SCALE(source), &epilogue, a_scale_bias, column, out,
                  (tile.first + row) * out_stride + column);
    }
  }
}
