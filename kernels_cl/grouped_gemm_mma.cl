// Grouped GEMM on NVIDIA's tensor cores by mma.sync. STAGES - 1 stages travel to local memory ahead of the one that is
// multiplied. A warp has the same 16 columns of both panels. Sums run over k in ascending order, 16 at a time.
#define TILE_PANELS 2
#define WARPS_M (TILE_ROWS < 64 ? 1 : 2)
#define WARPS_N 4
#define ITEMS (32 * WARPS_M * WARPS_N)
#define COPY_ITEMS ITEMS
#include "kernels_cl/lib/row_store.clh"

#define TILES_M (TILE_ROWS / WARPS_M / 16)  // of 16 rows, of a warp
#define MMA JOIN(MMA_, W_DTYPE)
#define PIECES (OUT_PANELS * PANEL / PIECE)  // of 16 rows

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void grouped_gemm_mma(GROUPED_GEMM_PARAMETERS) {
  __local uchar stages[STAGES * STAGE_BYTES] __attribute__((aligned(128)));  // later pieces of `out`, which need less
  OFFSET_POINTERS;
  const int number = get_group_id(1) * get_num_groups(0) + get_group_id(0);
  const Tile tile = find_tile(number, n, row_ends, rows, first_expert, experts, rows_per_expert);
  if (tile.rows.count == 0) return;
  const int lane = get_local_id(0) % 32, warp = get_local_id(0) / 32, warp_n = warp % WARPS_N, warp_m = warp / WARPS_N;
  const Copies copies = copies_of(&tile, a, a_index, index_divisor, a_rows, a_stride, weights, n, k);
  float sums[TILES_M][2 * TILE_PANELS][4];
#pragma unroll
  for (int m = 0; m < TILES_M; ++m)
#pragma unroll
    for (int j = 0; j < 2 * TILE_PANELS; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[m][j][i] = 0;

  const int steps = (k + K_STEP - 1) / K_STEP;
  copy_first_stages(&copies, steps, stages);
  for (int step = 0; step < steps; ++step) {
    const uint stage = next_stage(&copies, step, steps, stages);
#pragma unroll
    for (int part = 0; part < K_STEP / 16; ++part) {
      uint a_tile[TILES_M][4], w_tile[TILE_PANELS][4];
#pragma unroll
      for (int m = 0; m < TILES_M; ++m) {
        const int row = (warp_m * TILES_M + m) * 16 + lane % 16;
        LOAD_MATRICES("", a_tile[m], stage + row * LINE + ((part * 2 + lane / 16) ^ row % 8) * 16);
      }
#pragma unroll
      for (int p = 0; p < TILE_PANELS; ++p) {
        const int row = part * 16 + lane % 16;
        LOAD_MATRICES(".trans", w_tile[p],
                      stage + A_BYTES + p * BLOCK_BYTES + row * LINE + ((warp_n * 2 + lane / 16) ^ row % 8) * 16);
      }
#pragma unroll
      for (int m = 0; m < TILES_M; ++m)
#pragma unroll
        for (int j = 0; j < 2 * TILE_PANELS; ++j)
          MMA(sums[m][j], a_tile[m], w_tile[j / 2][j % 2 * 2], w_tile[j / 2][j % 2 * 2 + 1]);
    }
  }

  const Epilogue epilogue = EPILOGUE_OF(tile.rows.expert);
  const Activation activation = {alpha, limit, up_bias};
  WAIT_FOR_COPIES(0);
  barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
  for (int m = 0; m < TILES_M; ++m) {
    const int tile_m = warp_m * TILES_M + m;
    const OutRows out_rows = out_rows_of(&tile, tile_m * 16, a_index, index_divisor, a_rows, a_scale);
#pragma unroll
    for (int j = 0; j < 2 * OUT_PANELS; ++j) {
      const int column = j / 2 * PANEL + warp_n * 16 + j % 2 * 8;
      const float4 sum = vload4(0, sums[m][j]), up = vload4(0, sums[m][GATED ? j + 2 : j]);
      put_columns(OUTPUT(sum, up, tile.first_panel * PANEL + column), column % PIECE,
                  stages + (tile_m * PIECES + column / PIECE) * PIECE_BYTES);
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int piece = warp; piece < TILE_ROWS / 16 * PIECES; piece += ITEMS / 32) {
    const OutRows out_rows = out_rows_of(&tile, piece / PIECES * 16, a_index, index_divisor, a_rows, a_scale);
    store_piece(stages + piece * PIECE_BYTES, &out_rows, out, out_stride,
                tile.first_panel * PANEL + piece % PIECES * PIECE, OUT_WIDTH);
  }
}
