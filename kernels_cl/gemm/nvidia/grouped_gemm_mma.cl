// Grouped GEMM on NVIDIA's tensor cores by mma.sync. -DSTAGES=n: stages in local memory; copies run n - 1 stages ahead
// of the products. -DSLICED=1: K has slices, see k_slices.clh.
enum { WARPS_M = TILE_ROWS < 64 ? 1 : 2, WARPS_N = 4, ITEMS = 32 * WARPS_M * WARPS_N };
enum { TILE_PANELS = 2, COPY_ITEMS = ITEMS, EQUAL_HEIGHTS = 0, STEP_LINES = 1 };
#include "kernels_cl/gemm/nvidia/mma_stage.clh"
#include "kernels_cl/gemm/nvidia/row_store.clh"
#if SLICED
#include "kernels_cl/gemm/nvidia/k_slices.clh"
#endif

enum { PIECES = OUT_PANELS * PANEL / PIECE };  // of 16 rows of a tile

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void grouped_gemm_mma(GROUPED_GEMM_BUFFERS,
                                                                                  const grouped_gemm_args given) {
  const grouped_gemm_args args = given;
  __local uchar stages[STAGES * STAGE_BYTES] __attribute__((aligned(128)));  // the epilogue reuses it, and needs less
  const Gemm gemm = gemm_of(GROUPED_GEMM_BUFFER_NAMES, &args);
  const int number = get_group_id(1) * get_num_groups(0) + get_group_id(0);
  TileSearch search = start_search(&gemm);
  const Tile tile = find_tile(&search, &gemm, number);
  if (tile.rows.count == 0) return;
  const int lane = get_local_id(0) % 32, warp = get_local_id(0) / 32, warp_n = warp % WARPS_N, warp_m = warp / WARPS_N;
  Copies copies = copies_of(&tile, &gemm);
  WarpSums sums;
  clear_sums(sums);

  int steps = (args.k + K_STEP - 1) / K_STEP;
#if SLICED
  const int slice = get_group_id(2), last_slice = get_num_groups(2) - 1,
            of_slice = (steps + last_slice) / (last_slice + 1);
  copies.first_step = min(slice * of_slice, steps);
  steps = min(of_slice, steps - copies.first_step);
#endif
  copy_first_stages(&copies, steps, stages);
  for (int step = 0; step < steps; ++step) multiply_stage(sums, next_stage(&copies, step, steps, stages), TILES_M);

  const Epilogue epilogue = expert_epilogue(&gemm, tile.rows.expert);
  WAIT_FOR_COPIES(0);
  barrier(CLK_LOCAL_MEM_FENCE);
#if SLICED
  __local int late;
  __global float4* const own_parts = (__global float4*)gemm.parts + (ulong)number * last_slice * PART_FOURS;
  volatile __global ulong* const stamps_of_tile = gemm.stamps + 2 * number * last_slice;
  if (slice != last_slice) {
    hand_sums_over(sums, own_parts, stamps_of_tile, slice, args.stamp);
    return;
  }
  add_sums_of(sums, last_slice, own_parts, stamps_of_tile, args.stamp, args.patience, &late);
#endif
#pragma unroll
  for (int m = 0; m < TILES_M; ++m) {
    const int tile_m = warp_m * TILES_M + m;
    const OutRows out_rows = out_rows_of(&tile, tile_m * 16, &gemm);
#pragma unroll
    for (int j = 0; j < 2 * OUT_PANELS; ++j) {
      const int column = j / 2 * PANEL + warp_n * 16 + j % 2 * 8 + lane % 4 * 2;
      const float4 sum = vload4(0, sums[m][j]), up = vload4(0, sums[m][GATED ? j + 2 : j]);
      put_columns(output_of(&gemm, sum, up, &epilogue, &out_rows, tile.first_panel * PANEL + column), column % PIECE,
                  stages + (tile_m * PIECES + column / PIECE) * PIECE_BYTES);
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int piece = warp; piece < TILE_ROWS / 16 * PIECES; piece += ITEMS / 32) {
    const OutRows out_rows = out_rows_of(&tile, piece / PIECES * 16, &gemm);
    store_piece(stages + piece * PIECE_BYTES, &out_rows, gemm.out, args.out_stride,
                tile.first_panel * PANEL + piece % PIECES * PIECE, out_width(args.n));
  }
}
