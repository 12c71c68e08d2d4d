// Grouped GEMM of packed codes on NVIDIA's tensor cores by mma.sync: the codes are the left operand (code_stage.clh).
// -DSTAGES=n: stages in local memory; copies run n - 1 stages ahead of the products.
enum { TILE_PANELS = 2, ITEMS = 128, COPY_ITEMS = ITEMS, EQUAL_HEIGHTS = 0 };
#include "kernels_cl/gemm/nvidia/code_step.h"
#include "kernels_cl/gemm/nvidia/code_stage.clh"
#include "kernels_cl/gemm/nvidia/code_store.clh"

// @param tiles  how many tiles of eight rows to multiply: 1 or all
INLINE void multiply_steps(CodeSums* sums, const Copies* copies, const GroupScales* group_scales, int steps,
                           __local uchar* stages, int tiles) {
  StepScales next = no_scales();
  load_step_scales(&next, group_scales, 0);
  for (int step = 0; step < steps; ++step) {
    const StepScales scales = scales_of_step(&next, group_scales, step);
    const uint stage = next_stage(copies, step, steps, stages);
    multiply_code_stage(sums, stage, &scales, step, steps, tiles);
  }
}

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void grouped_gemm_codes(GROUPED_GEMM_BUFFERS,
                                                                                    const grouped_gemm_args given) {
  const grouped_gemm_args args = given;
  __local uchar stages[STAGES * STAGE_BYTES] __attribute__((aligned(128)));
  __local int sources[TILE_ROWS];  // the row of `a` that each row of the tile reads; -1: there is none
  const Gemm gemm = gemm_of(GROUPED_GEMM_BUFFER_NAMES, &args);
  const int number = get_group_id(1) * get_num_groups(0) + get_group_id(0);
  TileSearch search = start_search(&gemm);
  const Tile tile = find_tile(&search, &gemm, number);
  if (tile.rows.count == 0) return;
  const int item = get_local_id(0), lane = item % 32, warp = item / 32;
  if (item < TILE_ROWS) sources[item] = item < tile.rows.count ? (int)source_row(&gemm, tile.rows.first + item) : -1;
  barrier(CLK_LOCAL_MEM_FENCE);
  const Copies copies = copies_of(&tile, &gemm);
  const int column = tile.first_panel * PANEL + warp * 16 + lane_column(lane), row = lane % 4 * 2;

  CodeSums sums;
  clear_code_sums(&sums);
  GroupScales group_scales =
      group_scales_of(&gemm.weights, tile.rows.expert, column, GATED, gemm.a_scale, args.a_scale_stride);
#if TILE_ROWS == 16
#pragma unroll
  for (int i = 0; i < LANE_ROWS; ++i) group_scales.sources[i] = sources[lane_row(i)];
#else
  group_scales.sources = sources;
#endif
  const int steps = (args.k + K_STEP - 1) / K_STEP;
  copy_first_stages(&copies, steps, stages);
  if (TILES_N == 2 && tile.rows.count <= 8)
    multiply_steps(&sums, &copies, &group_scales, steps, stages, 1);
  else
    multiply_steps(&sums, &copies, &group_scales, steps, stages, TILES_N);

  const Epilogue epilogue = expert_epilogue(&gemm, tile.rows.expert);
  const LaneColumns columns = lane_columns_of(&epilogue, column, args.n);
#pragma unroll
  for (int t = 0; t < TILES_N; ++t) {
    const int first = t * 8 + row;
    const bool there[2] = {sources[first] >= 0, sources[first + 1] >= 0};
    const float row_scale[2] = {there[0] ? row_scale_of(&gemm, sources[first]) : 0,
                                there[1] ? row_scale_of(&gemm, sources[first + 1]) : 0};
    store_two_rows(&gemm, TOTALS(sums)[0][t], TOTALS(sums)[1][t], &columns, row_scale, there, tile.rows.first + first,
                   column);
  }
}
