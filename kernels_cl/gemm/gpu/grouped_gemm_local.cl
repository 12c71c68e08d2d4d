// Grouped GEMM of many rows for a GPU. A work-group of 16 x 16 work-items computes 64 rows of one expert by the 64 columns
// of one panel, 4 x 4 sums each, from tiles of K_STEP k in local memory; the next tiles are read while these multiply.
// Every sum runs over k in ascending order.
#include "kernels_cl/gemm/grouped_gemm.clh"

#define SIDE 16
#if TILE_ROWS != 64
#error "written for 64 rows"
#endif
#define K_STEP 16
#define A_PITCH (TILE_ROWS + 4)  // of a k in local memory: the padding spreads the transposing stores over the banks

__kernel __attribute__((reqd_work_group_size(SIDE * SIDE, 1, 1))) void grouped_gemm_local(GROUPED_GEMM_PARAMETERS) {
  __local Element4 a_tile[K_STEP * A_PITCH / 4];
  __local Element4 w_tile[K_STEP * PANEL / 4];
  OFFSET_POINTERS;
  const RowTile tile = find_row_tile(get_group_id(1), TILE_ROWS, row_ends, rows, first_expert, experts, rows_per_expert);
  if (tile.count == 0) return;
  const int item = get_local_id(0);
  const __global STORAGE(W_DTYPE)* panel = PANEL_OF(tile.expert, get_group_id(0));
  const Groups groups_of = GROUPS_OF(tile.expert, get_group_id(0));
  ENTER_K_WINDOW(panel, tile.expert)

  // What this work-item brings in: 4 k of one row of a, and 4 columns of one k of the panel.
  const int load_row = item / 4, load_k = item % 4 * 4;
  const long load_source = load_row < tile.count ? source_row(tile.first + load_row, a_index, index_divisor, a_rows) : -1;
  const __global STORAGE(A_DTYPE)* load_a = a + max(0L, load_source) * a_stride;
  const __global STORAGE(A_SCALE_DTYPE)* load_scale = a_scale + max(0L, load_source) * a_scale_stride;
  __local Element* a_at = (__local Element*)a_tile + load_k * A_PITCH + load_row;
#define NEXT_A(j, begin) (load_source >= 0 && (begin) + load_k + j < k ? activation(load_a, load_scale, (begin) + load_k + j) : 0)
#define NEXT_W(begin) ((begin) + item / SIDE < k ? weight4(panel, &groups_of, (begin) + item / SIDE, item % SIDE * 4) : (Element4)(0))
  Element next_a0 = NEXT_A(0, 0), next_a1 = NEXT_A(1, 0), next_a2 = NEXT_A(2, 0), next_a3 = NEXT_A(3, 0);
  Element4 next_w = NEXT_W(0);

  const int x = item % SIDE, y = item / SIDE;
  Element4 acc0 = 0, acc1 = 0, acc2 = 0, acc3 = 0;
  for (int begin = 0; begin < k; begin += K_STEP) {
    barrier(CLK_LOCAL_MEM_FENCE);
    a_at[0] = next_a0, a_at[A_PITCH] = next_a1, a_at[2 * A_PITCH] = next_a2, a_at[3 * A_PITCH] = next_a3;
    w_tile[item] = next_w;
    barrier(CLK_LOCAL_MEM_FENCE);
    const int next = begin + K_STEP;
    next_a0 = NEXT_A(0, next), next_a1 = NEXT_A(1, next), next_a2 = NEXT_A(2, next), next_a3 = NEXT_A(3, next);
    next_w = NEXT_W(next);
    for (int i = 0; i < K_STEP; ++i) {
      const Element4 rows4 = a_tile[i * (A_PITCH / 4) + y], w = w_tile[i * (PANEL / 4) + x];
      acc0 = MULTIPLY_ADD(rows4.s0, w, acc0), acc1 = MULTIPLY_ADD(rows4.s1, w, acc1);
      acc2 = MULTIPLY_ADD(rows4.s2, w, acc2), acc3 = MULTIPLY_ADD(rows4.s3, w, acc3);
    }
  }

  const int first_column = get_group_id(0) * PANEL + x * 4;
  const Epilogue epilogue = EPILOGUE_OF(tile.expert);
#define STORE_ROW(r)                                                                                          \
  if (y * 4 + r < tile.count) {                                                                               \
    const long row = tile.first + y * 4 + r, source = source_row(row, a_index, index_divisor, a_rows);        \
    const float row_scale = source >= 0 ? ROW_SCALE(source) : 1.0f;                                  \
    const Element sums[4] = {acc##r.s0, acc##r.s1, acc##r.s2, acc##r.s3};                                     \
    for (int j = 0; j < 4; ++j)                                                                               \
      if (source >= 0 && first_column + j < n)                                                                \
        store_sum(sums[j], row_scale, &epilogue, a_scale_bias, first_column + j, out,                         \
                  row * out_stride + first_column + j);                                                       \
  }
  STORE_ROW(0) STORE_ROW(1) STORE_ROW(2) STORE_ROW(3)
}
