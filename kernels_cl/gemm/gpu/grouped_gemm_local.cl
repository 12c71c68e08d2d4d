// Grouped GEMM of many rows for a GPU. A work-group of 16 x 16 work-items computes 64 rows of one expert by the 64
// columns of one panel, 4 x 4 sums each. The operands are tiles of K_STEP k in local memory; the next tiles are read
// while these are multiplied. Every sum runs over k in ascending order.
#include "kernels_cl/gemm/grouped_gemm.clh"

#if TILE_ROWS != 64
#error "written for 64 rows"
#endif
// A_PITCH: stride of one k of `a` in local memory. Its padding spreads the transposing stores over the banks.
enum { SIDE = 16, K_STEP = 16, A_PITCH = TILE_ROWS + 4 };

// What a work-item loads per K-step: 4 k of a row of `a`, and 4 columns of one k of the panel; zeros from `k` on.
typedef struct {
  const __global STORAGE(A_DTYPE)* a;
  const __global STORAGE(A_SCALE_DTYPE)* a_scale;
  const __global STORAGE(W_DTYPE)* panel;
  const Groups* groups;
  int first_a, row_exists, first_w, column, k;
} Bringer;
inline Element next_a(const Bringer* of, int begin, int j) {
  const int i = begin + of->first_a + j;
  return of->row_exists && i < of->k ? activation(of->a, of->a_scale, i) : 0;
}
inline Element4 next_w(const Bringer* of, int begin) {
  const int i = begin + of->first_w;
  return i < of->k ? weight4(of->panel, of->groups, i, of->column) : (Element4)(0);
}

__kernel __attribute__((reqd_work_group_size(SIDE * SIDE, 1, 1))) void grouped_gemm_local(
    GROUPED_GEMM_BUFFERS, const grouped_gemm_args given) {
  const grouped_gemm_args args = given;
  __local Element4 a_tile[K_STEP * A_PITCH / 4];
  __local Element4 w_tile[K_STEP * PANEL / 4];
  Gemm gemm = gemm_of(GROUPED_GEMM_BUFFER_NAMES, &args);
  const RowTile tile = find_row_tile(&gemm, get_group_id(1), TILE_ROWS);
  if (tile.count == 0) return;
  const int item = get_local_id(0);
  const Weights expert_weights = enter_expert(&gemm, tile.expert);
  const __global STORAGE(W_DTYPE)* panel = panel_of(&expert_weights, get_group_id(0));
  const Groups groups = groups_of_panel(&expert_weights, get_group_id(0));
  const int k = gemm.args.k;

  const int load_row = item / 4, load_k = item % 4 * 4;
  const long load_source = load_row < tile.count ? source_row(&gemm, tile.first + load_row) : -1;
  const Bringer brings = {gemm.a + max(0L, load_source) * gemm.args.a_stride,
                          gemm.a_scale + max(0L, load_source) * gemm.args.a_scale_stride,
                          panel,
                          &groups,
                          load_k,
                          load_source >= 0,
                          item / SIDE,
                          item % SIDE * 4,
                          k};
  __local Element* a_at = (__local Element*)a_tile + load_k * A_PITCH + load_row;
  Element a0 = next_a(&brings, 0, 0), a1 = next_a(&brings, 0, 1), a2 = next_a(&brings, 0, 2),
          a3 = next_a(&brings, 0, 3);
  Element4 w_next = next_w(&brings, 0);

  const int x = item % SIDE, y = item / SIDE;
  Element4 acc0 = 0, acc1 = 0, acc2 = 0, acc3 = 0;
  for (int begin = 0; begin < k; begin += K_STEP) {
    barrier(CLK_LOCAL_MEM_FENCE);
    a_at[0] = a0, a_at[A_PITCH] = a1, a_at[2 * A_PITCH] = a2, a_at[3 * A_PITCH] = a3;
    w_tile[item] = w_next;
    barrier(CLK_LOCAL_MEM_FENCE);
    const int next = begin + K_STEP;
    a0 = next_a(&brings, next, 0), a1 = next_a(&brings, next, 1), a2 = next_a(&brings, next, 2),
    a3 = next_a(&brings, next, 3);
    w_next = next_w(&brings, next);
    for (int i = 0; i < K_STEP; ++i) {
      const Element4 rows4 = a_tile[i * (A_PITCH / 4) + y], w = w_tile[i * (PANEL / 4) + x];
      acc0 = multiply_add(rows4.s0, w, acc0), acc1 = multiply_add(rows4.s1, w, acc1);
      acc2 = multiply_add(rows4.s2, w, acc2), acc3 = multiply_add(rows4.s3, w, acc3);
    }
  }

  const int first_column = get_group_id(0) * PANEL + x * 4;
  const Epilogue epilogue = expert_epilogue(&gemm, tile.expert);
  const Element4 sums[4] = {acc0, acc1, acc2, acc3};
  for (int r = 0; r < 4; ++r) {
    if (y * 4 + r >= tile.count) break;
    const long row = tile.first + y * 4 + r, source = source_row(&gemm, row);
    if (source < 0) continue;
    const float row_scale = row_scale_of(&gemm, source);
    const Element of_row[4] = {sums[r].s0, sums[r].s1, sums[r].s2, sums[r].s3};
    for (int j = 0; j < 4; ++j)
      if (first_column + j < gemm.args.n) store_sum(&gemm, of_row[j], row_scale, &epilogue, row, first_column + j);
  }
}
