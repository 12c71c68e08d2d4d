// Grouped GEMM of few rows for a GPU: bound by reading the weights, which it does once. A work-group owns the 64 columns
// of one panel for up to TILE_ROWS rows of one expert; 16 work-items read a panel's row of 64 columns, 4 each, and
// SLICES of them share K. The slices' sums are added in a fixed order, so a row's result does not depend on the others.
#include "kernels_cl/gemm/grouped_gemm.clh"

enum { QUADS = PANEL / 4 };
#define EACH_ROW(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)
#if TILE_ROWS != 8
#error "written for 8 rows"
#endif

// A row whose index is out of range computes on row 0 and is not stored.
#define BEGIN_ROW(r)                                                                                          \
  Element4 acc##r = 0;                                                                                        \
  const long source##r = max(0L, source_row(&gemm, tile.first + min(r, tile.count - 1)));                       \
  const __global STORAGE(A_DTYPE)* a##r = gemm.a + source##r * gemm.args.a_stride;                                         \
  const __global STORAGE(A_SCALE_DTYPE)* scale##r = gemm.a_scale + source##r * gemm.args.a_scale_stride;
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

__kernel __attribute__((reqd_work_group_size(QUADS * SLICES, 1, 1))) void grouped_gemm_gemv(
    GROUPED_GEMM_BUFFERS, const grouped_gemm_args given) {
  const grouped_gemm_args args = given;
  __local Element4 partial[SLICES][TILE_ROWS][QUADS];
  Gemm gemm = gemm_of(GROUPED_GEMM_BUFFER_NAMES, &args);
  const RowTile tile = find_row_tile(&gemm, get_group_id(1), TILE_ROWS);
  if (tile.count == 0) return;
  const int quad = get_local_id(0) % QUADS, slice = get_local_id(0) / QUADS;
  const Weights expert_weights = enter_expert(&gemm, tile.expert);
  const __global STORAGE(W_DTYPE)* panel = panel_of(&expert_weights, get_group_id(0));
  const Groups groups = groups_of_panel(&expert_weights, get_group_id(0));
  const int k = gemm.args.k;

  EACH_ROW(BEGIN_ROW)
  // Every loop has the same trip count in all work-items: PoCL 3.1 runs others wrong beside a barrier.
  int begin = 0;
  for (; begin + 4 * SLICES <= k; begin += 4 * SLICES) {
    const int i = begin + slice;
    const Element4 w0 = weight4(panel, &groups, i, quad * 4), w1 = weight4(panel, &groups, i + SLICES, quad * 4);
    const Element4 w2 = weight4(panel, &groups, i + 2 * SLICES, quad * 4),
                   w3 = weight4(panel, &groups, i + 3 * SLICES, quad * 4);
    EACH_ROW(STEP4_ROW)
  }
  for (; begin < k; begin += SLICES) {
    const int i = begin + slice;
    if (i < k) {
      const Element4 w = weight4(panel, &groups, i, quad * 4);
      EACH_ROW(STEP_ROW)
    }
  }
  EACH_ROW(END_ROW)
  barrier(CLK_LOCAL_MEM_FENCE);

  const int first_column = get_group_id(0) * PANEL;
  const Epilogue epilogue = expert_epilogue(&gemm, tile.expert);
  for (int first_item = 0; first_item < tile.count * PANEL; first_item += QUADS * SLICES) {
    const int item = first_item + get_local_id(0), row = item / PANEL, column = first_column + item % PANEL;
    if (row < tile.count && column < gemm.args.n) {
      const long source = source_row(&gemm, tile.first + row);
      Element sum = 0;
      for (int s = 0; s < SLICES; ++s) sum += ((const __local Element*)partial[s][row])[item % PANEL];
      if (source >= 0) store_sum(&gemm, sum, row_scale_of(&gemm, source), &epilogue, tile.first + row, column);
    }
  }
}
