// Grouped GEMM of packed codes on Hopper's tensor cores by wgmma, persistent like grouped_gemm_wgmma: tiles of TILE_ROWS
// rows by four panels. Codes are the left operand, from registers, so a product has 64 columns of weights and TILE_ROWS
// rows of `a`; a multiplying warp group has one pair of panels, a warp 16 columns of each. Where columns or rows have
// scales for groups of k, the sums of a group get them before they are added to those of the other groups, in ascending
// order, for one panel while the other one's next products run; 128 rows then go by halves to the warp groups, which share
// one pair of panels, as both kinds of sums take registers. The sums are registers that the PTX declares, see
// lib/hopper.clh.
#if TILE_ROWS == 128 && (defined(W_SCALE_DTYPE) || defined(A_GROUP))
#define SHARES_PANELS 1
#define TILE_PANELS 2
#define PRODUCT_ROWS 64
#else
#define SHARES_PANELS 0
#define TILE_PANELS 4
#define PRODUCT_ROWS TILE_ROWS
#endif
#include "kernels_cl/lib/hopper.clh"
#include "kernels_cl/lib/code_operands.clh"
#include "kernels_cl/lib/code_store.clh"

#define TILES_N (PRODUCT_ROWS / 8)  // of 8 rows
#define LANE_ROWS (PRODUCT_ROWS / 32)
#if PRODUCT_ROWS == 128
#define SUMS_0 FOUR_REGISTERS("a", "b", "c", "d")
#define SUMS_1 FOUR_REGISTERS("e", "f", "g", "h")
#define FOR_PANEL_0(DO) { DO("a", 0, 0) DO("b", 0, 4) DO("c", 0, 8) DO("d", 0, 12) }
#define FOR_PANEL_1(DO) { DO("e", 1, 0) DO("f", 1, 4) DO("g", 1, 8) DO("h", 1, 12) }
#define FOR_BOTH_PANELS(DO) { DO("a", "e", 0) DO("b", "f", 4) DO("c", "g", 8) DO("d", "h", 12) }
#else
#define SUMS_0 TWO_REGISTERS("a", "b")
#define SUMS_1 TWO_REGISTERS("c", "d")
#define FOR_PANEL_0(DO) { DO("a", 0, 0) DO("b", 0, 4) }
#define FOR_PANEL_1(DO) { DO("c", 1, 0) DO("d", 1, 4) }
#define FOR_BOTH_PANELS(DO) { DO("a", "c", 0) DO("b", "d", 4) }
#endif

#define TYPES_i8 ".s32.s8.s8"
#define TYPES_f8_e4m3 ".f32.e4m3.e4m3"
#define TYPES_f8_e5m2 ".f32.e5m2.e5m2"
#define TYPES_f16 ".f32.f16.f16"
#define TYPES_bf16 ".f32.bf16.bf16"
#define SIGNS_i8 ""
#define SIGNS_f8_e4m3 ", 1, 1"
#define SIGNS_f8_e5m2 ", 1, 1"
#define SIGNS_f16 ", 1, 1, 0"
#define SIGNS_bf16 ", 1, 1, 0"
#if JOIN(IS_I8_, A_DTYPE)
#define SUM_TYPE "s32"
#define IN_REGISTER "r"
#define TO_F32(x) "cvt.rn.f32.s32 number, " x ";"
#else
#define SUM_TYPE "f32"
#define IN_REGISTER "f"
#define TO_F32(x) "mov.f32 number, " x ";"
#endif

// sums = codes rows, plus sums if `adds`.
#define WGMMA(sums, codes, rows, adds)                                                                             \
  asm volatile("{.reg .pred adds; setp.ne.s32 adds, %5, 0;\n//A90 wgmma.mma_async.sync.aligned.m64n" TEXT(PRODUCT_ROWS) \
               "k" TEXT(PRODUCT_K) JOIN(TYPES_, A_DTYPE) " {" sums "}, {%0, %1, %2, %3}, %4, adds"                  \
               JOIN(SIGNS_, A_DTYPE) ";\n}" ::"r"((codes)[0]), "r"((codes)[1]), "r"((codes)[2]), "r"((codes)[3]),   \
               "l"(rows), "r"(adds)                                                                                \
               : "memory")

// Register 4 t + i of a lane is row 8 t + lane % 4 * 2 (+ 1 for odd i), and its even column, or for i = 2, 3 its odd one.
// total += sum * scale, for register 4 t .. 4 t + 3.
#define ADD4(x, t0, t1, t2, t3, total, w, even_row, odd_row)                                                        \
  asm volatile("{.reg .f32 number;\n" TO_F32(x t0) " fma.rn.f32 %0, number, %4, %0;\n" TO_F32(x t1)                  \
               " fma.rn.f32 %1, number, %5, %1;\n" TO_F32(x t2) " fma.rn.f32 %2, number, %6, %2;\n" TO_F32(x t3)    \
               " fma.rn.f32 %3, number, %7, %3;\n}"                                                                 \
               : "+f"((total)[0]), "+f"((total)[1]), "+f"((total)[2]), "+f"((total)[3])                             \
               : "f"((w)[0] * (even_row)), "f"((w)[0] * (odd_row)), "f"((w)[1] * (even_row)), "f"((w)[1] * (odd_row)))
#define READ4(x, t0, t1, t2, t3, sum)                                                                            \
  asm volatile("mov." SUM_TYPE " %0, " x t0 "; mov." SUM_TYPE " %1, " x t1 "; mov." SUM_TYPE " %2, " x t2 "; mov." \
               SUM_TYPE " %3, " x t3 ";"                                                                         \
               : "=" IN_REGISTER((sum)[0]), "=" IN_REGISTER((sum)[1]), "=" IN_REGISTER((sum)[2]),                 \
                 "=" IN_REGISTER((sum)[3]))

// Where this lane's rows of the product are in `a`: rows lane, lane + 32, ..; -1: there is none.
#define FIND_SOURCES(source)                                                                                      \
  _Pragma("unroll") for (int i = 0; i < LANE_ROWS; ++i) {                                                         \
    const int row = first_row + lane + i * 32;                                                                    \
    (source)[i] = row < tile.rows.count ? (int)source_row(tile.rows.first + row, a_index, index_divisor, a_rows) : -1; \
  }
// Row t * 8 + lane % 4 * 2 + odd of values that lanes hold by row.
#define OF_ROW(by_row, t, odd) lane_at((by_row)[(t) / 4], (t) % 4 * 8 + lane % 4 * 2 + (odd))
#define SCALE_OF_ROW(by_row, t, odd) as_float(OF_ROW(by_row, t, odd))

// A run of k that share all scales, as far as it is in a step.
#if defined(GROUP_K) && GROUP_K < K_STEP
#define RUN_K GROUP_K
#else
#define RUN_K K_STEP
#endif
#define RUNS (K_STEP / RUN_K)
#define RUN_PRODUCTS (RUN_K / PRODUCT_K)
#define RUN_PARTS (RUN_K < 32 ? 1 : RUN_K / 32)

#ifdef GROUP_K
// What a run of k has for this lane: scales of its columns, the offsets of their codes, and scales of rows lane, lane + 32, ..
// as bits of f32.
typedef struct {
  float w_scale[4];
  uint offset[4];
  int row_scale[LANE_ROWS];
} RunScales;
#if A_GROUP
#define LOAD_ROW_SCALES(of_run, begin)                                                                            \
  _Pragma("unroll") for (int i = 0; i < LANE_ROWS; ++i)(of_run).row_scale[i] =                                    \
      source[i] >= 0 ? as_int(LOAD(A_SCALE_DTYPE)(a_scale, source[i] * a_scale_stride + (begin) / A_GROUP)) : 0;
#define SPREAD_ROW_SCALES                                                                   \
  _Pragma("unroll") for (int i = 0; i < 2 * TILES_N; ++i) row_scales[i] = SCALE_OF_ROW(of_run.row_scale, i / 2, i % 2);
#else
#define LOAD_ROW_SCALES(of_run, begin)
#define SPREAD_ROW_SCALES _Pragma("unroll") for (int i = 0; i < 2 * TILES_N; ++i) row_scales[i] = 1;
#endif
#define LOAD_RUN(of_run, run)                                                \
  {                                                                          \
    const int begin = min((run)*RUN_K, k - 1);                               \
    LOAD_GROUP((of_run).w_scale, (of_run).offset, group_at, begin)           \
    LOAD_ROW_SCALES(of_run, begin)                                           \
  }
#define RUN_ENDS(run) (GROUP_K <= RUN_K || ((run) + 1) % (GROUP_K / RUN_K) == 0 || (run) + 1 == steps * RUNS)
#define ADD_TILE(x, j, t, n0, n1, n2, n3) \
  ADD4(x, n0, n1, n2, n3, totals[j][t], of_run.w_scale + 2 * (j), row_scales[2 * (t)], row_scales[2 * (t) + 1]);
#define ADD_TILES(x, j, t)                                                                     \
  ADD_TILE(x, j, t, "0", "1", "2", "3") ADD_TILE(x, j, t + 1, "4", "5", "6", "7")              \
  ADD_TILE(x, j, t + 2, "8", "9", "10", "11") ADD_TILE(x, j, t + 3, "12", "13", "14", "15")
#define TOTAL_OF(total, x, n0, n1, n2, n3, j, t) const float* const total = totals[j][t];
#else
#define RUN_ENDS(run) 0
#define TOTAL_OF(total, x, n0, n1, n2, n3, j, t) \
  Sum total[4];                                  \
  READ4(x, n0, n1, n2, n3, total);
#endif
// The products of panel j in a run.
#define MULTIPLY(j, sums)                                                                                       \
  {                                                                                                             \
    if (run * RUN_K % 32 == 0)                                                                                  \
      _Pragma("unroll") for (int part = 0; part < RUN_PARTS; ++part)                                            \
          load_code_operands(codes[j] + part * PRODUCTS, stage + A_BYTES + block * BLOCK_BYTES, strip, j,       \
                             run * RUN_K / 32 + part, OFFSETS + 2 * (j));                                       \
    WGMMA_FENCE;                                                                                                \
    _Pragma("unroll") for (int product = 0; product < RUN_PRODUCTS; ++product)                                  \
        WGMMA(sums, codes[j][run * RUN_PRODUCTS % PRODUCTS + product],                                          \
              operand(stage + first_row * LINE + (run * RUN_PRODUCTS + product) * 32), adds | product);         \
    WGMMA_COMMIT;                                                                                               \
  }
#define STORE_TILE(x0, x1, t, n0, n1, n2, n3)                                                                       \
  {                                                                                                                 \
    const bool there[2] = {OF_ROW(source, t, 0) >= 0, OF_ROW(source, t, 1) >= 0};                                    \
    const float scale_of[2] = {SCALE_OF_ROW(row_scale, t, 0), SCALE_OF_ROW(row_scale, t, 1)};                       \
    TOTAL_OF(total_0, x0, n0, n1, n2, n3, 0, t)                                                                     \
    TOTAL_OF(total_1, x1, n0, n1, n2, n3, 1, t)                                                                     \
    STORE_TWO_ROWS(total_0, total_1, scale_of, there,                                                               \
                   out + (tile.rows.first + first_row + (t)*8 + lane % 4 * 2) * out_stride)                         \
  }
#define STORE_TILES(x0, x1, t)                                                              \
  STORE_TILE(x0, x1, t, "0", "1", "2", "3") STORE_TILE(x0, x1, t + 1, "4", "5", "6", "7")   \
  STORE_TILE(x0, x1, t + 2, "8", "9", "10", "11") STORE_TILE(x0, x1, t + 3, "12", "13", "14", "15")

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void grouped_gemm_wgmma_codes(GROUPED_GEMM_PARAMETERS) {
  __local uchar stages[STAGES * STAGE_BYTES] __attribute__((aligned(1024)));
  __local ulong barriers[2 * STAGES];
  OFFSET_POINTERS;
  const int item = get_local_id(0), lane = item % 32;
  const uint full = shared_address(barriers), empty = full + STAGES * 8;
  START_BARRIERS(full, empty);
  if (item < COPY_ITEMS) {
    COPY_TILES(stages, full, empty)
    return;
  }

  MORE_REGISTERS;
  asm volatile(".reg ." SUM_TYPE " a<16>, b<16>, c<16>, d<16>, e<16>, f<16>, g<16>, h<16>;");
  const int warp = item / 32 - 4, strip = warp % 4, half_group = warp / 4;
  const int block = SHARES_PANELS ? 0 : half_group, first_row = SHARES_PANELS ? half_group * PRODUCT_ROWS : 0;
  const int steps = (k + K_STEP - 1) / K_STEP;
  const Activation activation = {alpha, limit, up_bias};
  Ring ring = {0, 0};
  int number = get_group_id(0);
  Tile tile = find_tile(number, n, row_ends, rows, first_expert, experts, rows_per_expert);
  while (tile.rows.count != 0) {
    const bool has_rows = !SHARES_PANELS || first_row < tile.rows.count;
    const int column =
        (tile.first_panel + block * SIDE_PANELS / (1 + GATED)) * PANEL + strip * 16 + LANE_COLUMN(lane);
#ifdef GROUP_K
    ulong group_at[2];
    FIND_GROUPS(group_at, tile.rows.expert, column, GATED)
    int source[LANE_ROWS];
    FIND_SOURCES(source)
    float totals[2][TILES_N][4], row_scales[2 * TILES_N];
#pragma unroll
    for (int i = 0; i < 2 * TILES_N * 4; ++i) totals[i / (TILES_N * 4)][i / 4 % TILES_N][i % 4] = 0;
    RunScales of_run;
    LOAD_RUN(of_run, 0)
#define OFFSETS of_run.offset
#else
    const uint offset[4] = {OFFSET_OF(0), OFFSET_OF(0), OFFSET_OF(0), OFFSET_OF(0)};
#define OFFSETS offset
#endif
    uint before = 0;  // the stage of the last step
    for (int step = 0; step < steps; ++step) {
      barrier_wait(full + ring.stage * 8, ring.turn);
      PROXY_FENCE;
      const uint stage = shared_address(stages) + ring.stage * STAGE_BYTES;
      uint codes[2][RUN_PARTS * PRODUCTS][4];
#pragma unroll
      for (int run = 0; run < RUNS && has_rows; ++run) {
        const int number_of_run = step * RUNS + run;
        const int adds = number_of_run > 0 && !RUN_ENDS(number_of_run - 1);
        MULTIPLY(0, SUMS_0)
#ifdef GROUP_K
        MULTIPLY(1, SUMS_1)
        SPREAD_ROW_SCALES
        WGMMA_WAIT(1);
        if (RUN_ENDS(number_of_run)) FOR_PANEL_0(ADD_TILES)
        WGMMA_WAIT(0);
        if (RUN_ENDS(number_of_run)) FOR_PANEL_1(ADD_TILES)
        LOAD_RUN(of_run, number_of_run + 1)  // before they are wanted
#else
        WGMMA_WAIT(1);
        if (step > 0 && lane == 0) barrier_arrive(empty + before * 8);
        MULTIPLY(1, SUMS_1)
        WGMMA_WAIT(1);
#endif
      }
#ifdef GROUP_K
      if (lane == 0) barrier_arrive(empty + ring.stage * 8);
#endif
      before = ring.stage;
      advance(&ring);
    }
    // While the last products run.
    number += get_num_groups(0);
    const Tile next = find_tile(number, n, row_ends, rows, first_expert, experts, rows_per_expert);
    const Epilogue epilogue = EPILOGUE_OF(tile.rows.expert);
    const LaneColumns columns = lane_columns_of(&epilogue, column, n);
#ifndef GROUP_K
    int source[LANE_ROWS];
    FIND_SOURCES(source)
#endif
    int row_scale[LANE_ROWS];
#pragma unroll
    for (int i = 0; i < LANE_ROWS; ++i) row_scale[i] = source[i] >= 0 ? as_int(ROW_SCALE(source[i])) : 0;
#ifndef GROUP_K
    WGMMA_WAIT(0);
    if (lane == 0) barrier_arrive(empty + before * 8);
#endif
    FOR_BOTH_PANELS(STORE_TILES)
    tile = next;
  }
}
