// Grouped GEMM of few rows for a GPU. It is bound by reading the weights, which it does once. A work-group computes the
// 64 columns of one panel for up to TILE_ROWS rows of one expert. 16 work-items read one k of the panel, 4 of its 64
// columns each, and SLICES such sets of work-items share K. The slices' sums are added in a fixed order, so the result
// of a row does not depend on the other rows.
#include "kernels_cl/gemm/grouped_gemm.clh"

enum { QUADS = PANEL / 4 };

// Where the rows of a tile and their scales start. Entries past the last row repeat it.
typedef struct {
  const __global STORAGE(A_DTYPE)* a[TILE_ROWS];
  const __global STORAGE(A_SCALE_DTYPE)* scale[TILE_ROWS];
} Rows;
// A row whose index is out of range is computed from row 0 of `a`, and is not stored.
INLINE void find_rows(const Gemm* gemm, const RowTile* tile, Rows* rows) {
#pragma unroll
  for (int r = 0; r < TILE_ROWS; ++r) {
    const long source = max(0L, source_row(gemm, tile->first + min(r, tile->count - 1)));
    rows->a[r] = gemm->a + source * gemm->args.a_stride;
    rows->scale[r] = gemm->a_scale + source * gemm->args.a_scale_stride;
  }
}
// Adds the products at k = i, i + SLICES, .. to the sums of the first `count` rows: `products` of them, at most 4.
INLINE void add_products(Element4 sums[TILE_ROWS], const Rows* rows, int count, int i, const Element4* w,
                         int products) {
#pragma unroll
  for (int r = 0; r < TILE_ROWS; ++r) {
    if (r >= count) continue;
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (j < products) sums[r] = multiply_add(activation(rows->a[r], rows->scale[r], i + j * SLICES), w[j], sums[r]);
  }
}

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

  Rows rows;
  find_rows(&gemm, &tile, &rows);
  Element4 sums[TILE_ROWS];
#pragma unroll
  for (int r = 0; r < TILE_ROWS; ++r) sums[r] = 0;
  // Every loop has the same trip count in all work-items: PoCL 3.1 runs other loops incorrectly beside a barrier.
  int begin = 0;
  for (; begin + 4 * SLICES <= k; begin += 4 * SLICES) {
    const int i = begin + slice;
    Element4 w[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) w[j] = weight4(panel, &groups, i + j * SLICES, quad * 4);
    add_products(sums, &rows, tile.count, i, w, 4);
  }
  for (; begin < k; begin += SLICES) {
    const int i = begin + slice;
    if (i < k) {
      const Element4 w = weight4(panel, &groups, i, quad * 4);
      add_products(sums, &rows, tile.count, i, &w, 1);
    }
  }
#pragma unroll
  for (int r = 0; r < TILE_ROWS; ++r)
    if (r < tile.count) partial[slice][r][quad] = sums[r];
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
