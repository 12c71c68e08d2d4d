// Grouped GEMM of packed codes on Hopper's tensor cores by wgmma. Persistent like grouped_gemm_wgmma, with tiles of
// TILE_ROWS rows by four panels. Codes are the left operand, so a product has 64 columns of weights and TILE_ROWS rows
// of `a`. A consumer warp group has one pair of panels, and a warp has 16 columns of each. wgmma reads the codes of
// K-major panels from local memory, other codes from registers. The sums are registers that the PTX declares; READ4 of
// wgmma.clh reads them.
enum { TILES_N = TILE_ROWS / 8 };  // tiles of 8 rows
enum { TILE_PANELS = 4, COPY_ITEMS = 128, ITEMS = 384, BOX_ROWS = 64 };
enum { PRODUCER_REGISTERS = 56, CONSUMER_REGISTERS = 224, EQUAL_HEIGHTS = 0, HALF_TILES = 0, STEP_LINES = 1 };
#include "kernels_cl/gemm/nvidia/code_operands.clh"
#include "kernels_cl/gemm/nvidia/code_store.clh"
#include "kernels_cl/gemm/hopper/hopper.clh"
#if QUANTIZES  // the results of a gated activation go to `q` as codes
#include "kernels_cl/gemm/hopper/quantized_store.clh"
#endif

#if TILE_ROWS == 128
#define SUMS_0 FOUR_REGISTERS("a", "b", "c", "d")
#define SUMS_1 FOUR_REGISTERS("e", "f", "g", "h")
#define FOR_SUMS_0(DO) DO("a", 0) DO("b", 4) DO("c", 8) DO("d", 12)
#define FOR_SUMS_1(DO) DO("e", 0) DO("f", 4) DO("g", 8) DO("h", 12)
#define FOR_BOTH_SUMS(DO) \
  { DO("a", "e", 0) DO("b", "f", 4) DO("c", "g", 8) DO("d", "h", 12) }
#else
#define SUMS_0 TWO_REGISTERS("a", "b")
#define SUMS_1 TWO_REGISTERS("c", "d")
#define FOR_SUMS_0(DO) DO("a", 0) DO("b", 4)
#define FOR_SUMS_1(DO) DO("c", 0) DO("d", 4)
#define FOR_BOTH_SUMS(DO) \
  { DO("a", "c", 0) DO("b", "d", 4) }
#endif

#if OF(IS_I8, A_DTYPE)
#define TO_F32(x) "cvt.rn.f32.s32 number, " x ";"
#else
#define TO_F32(x) "mov.f32 number, " x ";"
#endif

// sums = codes * rows, plus the old sums if `adds`.
#if W_K_MAJOR
#define WGMMA(sums, codes, rows, adds)                                                                               \
  asm volatile("{.reg .pred adds; setp.ne.s32 adds, %2, 0;\n//A90 wgmma.mma_async.sync.aligned.m64n" TEXT(TILE_ROWS) \
                   OF(TYPES, A_DTYPE) " {" sums "}, %0, %1, adds" SIGNS ";\n}" ::"l"(codes),                         \
               "l"(rows), "r"(adds)                                                                                  \
               : "memory")
#else
#define WGMMA(sums, codes, rows, adds)                                                                               \
  asm volatile("{.reg .pred adds; setp.ne.s32 adds, %5, 0;\n//A90 wgmma.mma_async.sync.aligned.m64n" TEXT(TILE_ROWS) \
                   OF(TYPES, A_DTYPE) " {" sums "}, {%0, %1, %2, %3}, %4, adds" SIGNS ";\n}" ::"r"((codes)[0]),      \
               "r"((codes)[1]), "r"((codes)[2]), "r"((codes)[3]), "l"(rows), "r"(adds)                               \
               : "memory")
#endif

// The scale of row t * 8 + lane % 4 * 2 + odd. The lanes hold the scales by row, see find_lane_rows.
INLINE float scale_of_row(const int by_row[LANE_ROWS], int t, int odd) {
  return as_float(lane_at(by_row[t / 4], t % 4 * 8 + get_local_id(0) % 4 * 2 + odd));
}

#if SCALED_SUMS
#include "kernels_cl/gemm/hopper/wgmma_groups.clh"
#define TOTAL_OF(total, x, n0, n1, n2, n3, j, t) const float* const total = totals[j][t];
#else
#if W_K_MAJOR
#include "kernels_cl/gemm/hopper/wgmma_lines.clh"
#else
#include "kernels_cl/gemm/hopper/wgmma_steps.clh"
#endif
#define TOTAL_OF(total, x, n0, n1, n2, n3, j, t) \
  Sum total[4];                                  \
  READ4(x, n0, n1, n2, n3, total);
#endif

#if QUANTIZES
#define LEAVE(t, total_0, total_1, row_scale, there)                                       \
  keep_two_rows(numbers, largest, t,                                                       \
                activated(finish_sums(total_0, &columns, 0, row_scale, args.a_scale_bias), \
                          finish_sums(total_1, &columns, 1, row_scale, args.a_scale_bias), activation));
#else
#define LEAVE(t, total_0, total_1, row_scale, there) \
  store_two_rows(&gemm, total_0, total_1, &columns, row_scale, there, tile.rows.first + (t)*8 + lane % 4 * 2, column);
#endif
#define STORE_TILE(x0, x1, t, n0, n1, n2, n3)                                   \
  {                                                                             \
    const uint there_from = there_are[(t) / 4] >> ((t) % 4 * 8 + lane % 4 * 2); \
    const bool there[2] = {there_from & 1, there_from >> 1 & 1};                \
    const float scale_of[2] = {HAS_SCALES ? scale_of_row(row_scale, t, 0) : 1,  \
                               HAS_SCALES ? scale_of_row(row_scale, t, 1) : 1}; \
    TOTAL_OF(total_0, x0, n0, n1, n2, n3, 0, t)                                 \
    TOTAL_OF(total_1, x1, n0, n1, n2, n3, 1, t)                                 \
    LEAVE(t, total_0, total_1, scale_of, there)                                 \
  }
#define STORE_TILES(x0, x1, t)                     \
  STORE_TILE(x0, x1, t, "0", "1", "2", "3");       \
  STORE_TILE(x0, x1, t + 1, "4", "5", "6", "7");   \
  STORE_TILE(x0, x1, t + 2, "8", "9", "10", "11"); \
  STORE_TILE(x0, x1, t + 3, "12", "13", "14", "15");

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void grouped_gemm_wgmma_codes(
    GROUPED_GEMM_BUFFERS, const grouped_gemm_args given) {
  const grouped_gemm_args args = given;
  __local uchar stages[STAGES * STAGE_BYTES] __attribute__((aligned(1024)));
  __local ulong barriers[2 * STAGES];
  __local StageScales scales[SCALE_ARRIVALS ? STAGES : 1];
#if QUANTIZES
  __local RowGroups row_groups;
#endif
  const Gemm gemm = gemm_of(GROUPED_GEMM_BUFFER_NAMES, &args);
  const int item = get_local_id(0), lane = item % 32;
  const uint full = shared_address(barriers), empty = full + STAGES * 8;
  start_barriers(full, empty);
  if (item < COPY_ITEMS) {
    produce_tiles(&gemm, stages, full, empty, scales, 0);
    return;
  }

  take_registers();
  asm volatile(".reg ." SUM_TYPE " a<16>, b<16>, c<16>, d<16>, e<16>, f<16>, g<16>, h<16>;");
  const int warp = item / 32 - 4, warp_group = warp / 4;
  const WarpPlace place = {shared_address(stages), full, empty, warp_group * 2, warp % 4};
  const int steps = steps_of(args.k).end;
  const Activation activation = activation_of(&gemm);
  Ring ring = {0, 0};
  int number = get_group_id(0);
  TileSearch search = start_search(&gemm);
  Tile tile = find_tile(&search, &gemm, number);
  while (tile.rows.count != 0) {
    const int column = (tile.first_panel + place.panel / (1 + GATED)) * PANEL + place.strip * 16 + lane_column(lane);
#if SCALED_SUMS
    float totals[2][TILES_N][4];
#pragma unroll
    for (int i = 0; i < 2 * TILES_N * 4; ++i) totals[i / (TILES_N * 4)][i / 4 % TILES_N][i % 4] = 0;
    multiply_groups(totals, &ring, steps, &place, scales);
#else
    const Ring last = multiply_steps(&ring, steps, &place, scales);
#endif
    // Prepares the epilogue while the last products run.
    number += get_num_groups(0);
    const Tile next = find_tile(&search, &gemm, number);
    const Epilogue epilogue = expert_epilogue(&gemm, tile.rows.expert);
    const LaneColumns columns = lane_columns_of(&epilogue, column, args.n);
    int row_scale[LANE_ROWS];
    uint there_are[LANE_ROWS];
    find_lane_rows(row_scale, there_are, lane, &tile, &gemm);
#if !SCALED_SUMS
    WGMMA_WAIT(0);
    leave_stage(&place, &last);
#endif
#if QUANTIZES
    float4 numbers[TILES_N];
    int largest[2 * TILES_N];
    FOR_BOTH_SUMS(STORE_TILES)
    store_codes(numbers, largest, &row_groups, there_are, &tile, &gemm, warp, column);
#else
    FOR_BOTH_SUMS(STORE_TILES)
#endif
    tile = next;
  }
}
