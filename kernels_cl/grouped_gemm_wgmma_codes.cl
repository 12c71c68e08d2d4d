// Grouped GEMM of packed codes on Hopper's tensor cores by wgmma, persistent like grouped_gemm_wgmma: tiles of TILE_ROWS
// rows by four panels. Codes are the left operand, from registers, so a product has 64 columns of weights and TILE_ROWS
// rows of `a`; a multiplying warp group has one pair of panels, a warp 32 columns of it. Where columns or rows have
// scales for groups of k, the sums of a group get them before they are added to those of the other groups, in ascending
// order; 128 rows then go by halves to the warp groups, which share one pair of panels, as both kinds of sums take
// registers. The sums are registers that the PTX declares, see lib/hopper.clh.
#if TILE_ROWS == 128 && (defined(W_SCALE_DTYPE) || defined(A_GROUP))
#define SHARES_PANELS 1
#define TILE_PANELS 2
#define PRODUCT_ROWS 64
#else
#define SHARES_PANELS 0
#define TILE_PANELS 4
#define PRODUCT_ROWS TILE_ROWS
#endif
#define OUT_STEP 1
#define OUT_ROWS 1
#include "kernels_cl/lib/hopper.clh"
#include "kernels_cl/lib/code_operands.clh"

#define TILES_N (PRODUCT_ROWS / 8)  // of 8 rows
#define LANE_ROWS (PRODUCT_ROWS / 32)
#if PRODUCT_ROWS == 128
#define SUMS_0 FOUR_REGISTERS("a", "b", "c", "d")
#define SUMS_1 FOUR_REGISTERS("e", "f", "g", "h")
#define FOR_EVERY_REGISTER(DO)                                                       \
  DO("a", "e", 0) DO("b", "f", 4) DO("c", "g", 8) DO("d", "h", 12)
#else
#define SUMS_0 TWO_REGISTERS("a", "b")
#define SUMS_1 TWO_REGISTERS("c", "d")
#define FOR_EVERY_REGISTER(DO) DO("a", "c", 0) DO("b", "d", 4)
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

// Row t * 8 + lane % 4 * 2 + odd of values that lanes hold by row.
#define OF_ROW(by_row, t, odd) lane_at((by_row)[(t) / 4], (t) % 4 * 8 + lane % 4 * 2 + (odd))
#define SCALE_OF_ROW(by_row, t, odd) as_float(OF_ROW(by_row, t, odd))

#ifdef GROUP_K
#define ADD_TILE(x0, x1, t, n0, n1, n2, n3)                                                                        \
  {                                                                                                                \
    const float even_row = SCALE_OF_ROW(group_row_scale[group], t, 0), odd_row = SCALE_OF_ROW(group_row_scale[group], t, 1); \
    ADD4(x0, n0, n1, n2, n3, totals[0][t], w_scale[group], even_row, odd_row);                                     \
    ADD4(x1, n0, n1, n2, n3, totals[1][t], w_scale[group] + 2, even_row, odd_row);                                 \
  }
#define ADD_TILES(x0, x1, t)                                                                \
  ADD_TILE(x0, x1, t, "0", "1", "2", "3") ADD_TILE(x0, x1, t + 1, "4", "5", "6", "7")       \
  ADD_TILE(x0, x1, t + 2, "8", "9", "10", "11") ADD_TILE(x0, x1, t + 3, "12", "13", "14", "15")
#define TOTAL_OF(x, n0, n1, n2, n3, j, t) const float* const total = totals[j][t];
#else
#define TOTAL_OF(x, n0, n1, n2, n3, j, t) \
  Sum total[4];                           \
  READ4(x, n0, n1, n2, n3, total);
#endif
#define STORE_COLUMNS(x, n0, n1, n2, n3, j, t)                                                                       \
  {                                                                                                                  \
    TOTAL_OF(x, n0, n1, n2, n3, j, t)                                                                                \
    _Pragma("unroll") for (int odd = 0; odd < 2; ++odd) if (there[odd])                                              \
        store_columns(total[odd], total[2 + odd], &columns, j, scale_of[odd], a_scale_bias, column, n, to + odd * out_stride); \
  }
#define STORE_TILE(x0, x1, t, n0, n1, n2, n3)                                                                       \
  {                                                                                                                 \
    const bool there[2] = {OF_ROW(source, t, 0) >= 0, OF_ROW(source, t, 1) >= 0};                                    \
    const float scale_of[2] = {SCALE_OF_ROW(row_scale, t, 0), SCALE_OF_ROW(row_scale, t, 1)};                       \
    __global STORAGE(OUT_DTYPE)* const to = out + (tile.rows.first + first_row + (t)*8 + lane % 4 * 2) * out_stride;            \
    STORE_COLUMNS(x0, n0, n1, n2, n3, 0, t) STORE_COLUMNS(x1, n0, n1, n2, n3, 1, t)                                 \
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
  const int warp = item / 32 - 4, strip = warp % 4;
  const int block = SHARES_PANELS ? 0 : warp / 4, first_row = SHARES_PANELS ? warp / 4 * PRODUCT_ROWS : 0;
  const int steps = (k + K_STEP - 1) / K_STEP;
  Ring ring = {0, 0};
  for (int number = get_group_id(0);; number += get_num_groups(0)) {
    const Tile tile = find_tile(number, n, row_ends, rows, first_expert, experts, rows_per_expert);
    if (tile.rows.count == 0) break;
    const int column = (tile.first_panel + block * SIDE_PANELS) * PANEL + strip * 32 + LANE_COLUMN(lane);
    const Epilogue epilogue = EPILOGUE_OF(tile.rows.expert);
    const LaneColumns columns = lane_columns_of(&epilogue, column, n);
    int source[LANE_ROWS], row_scale[LANE_ROWS];  // of rows lane, lane + 32, ..; scales are bits of f32
#pragma unroll
    for (int i = 0; i < LANE_ROWS; ++i) {
      const int row = first_row + lane + i * 32;
      source[i] = row < tile.rows.count ? (int)source_row(tile.rows.first + row, a_index, index_divisor, a_rows) : -1;
      row_scale[i] = source[i] >= 0 ? as_int(ROW_SCALE(source[i])) : 0;
    }
#ifdef GROUP_K
    const ulong group_at = column_at(tile.rows.expert, column, n, groups);
    float totals[2][TILES_N][4];
#pragma unroll
    for (int i = 0; i < 2 * TILES_N * 4; ++i) totals[i / (TILES_N * 4)][i / 4 % TILES_N][i % 4] = 0;
#endif
    int adds = 0;
    uint before = 0;  // the stage of the last step
    for (int step = 0; step < steps; ++step) {
#ifdef GROUP_K
      // Read before they are wanted.
      float w_scale[STEP_GROUPS][4];
      uint offset[STEP_GROUPS][4];
      int group_row_scale[STEP_GROUPS][LANE_ROWS];
#pragma unroll
      for (int group = 0; group < STEP_GROUPS; ++group) {
        const int begin = min(step * K_STEP + group * GROUP_K, k - 1);
        LOAD_GROUP(w_scale[group], offset[group], group_at, begin)
#pragma unroll
        for (int i = 0; i < LANE_ROWS; ++i) {
          group_row_scale[group][i] = as_int(1.0f);
#if A_GROUP
          if (source[i] >= 0)
            group_row_scale[group][i] =
                as_int(LOAD(A_SCALE_DTYPE)(a_scale, source[i] * a_scale_stride + begin / A_GROUP));
#endif
        }
      }
#else
      const uint offset[1][4] = {{OFFSET_OF(0), OFFSET_OF(0), OFFSET_OF(0), OFFSET_OF(0)}};
#define STEP_GROUP(k) 0
#endif
      barrier_wait(full + ring.stage * 8, ring.turn);
      PROXY_FENCE;
      const uint stage = shared_address(stages) + ring.stage * STAGE_BYTES;
      uint codes[2][2 * PRODUCTS][4];  // of a part and the one before, which is still read
#pragma unroll
      for (int part = 0; part < K_STEP / 32; ++part) {
        load_code_operands(codes[part % 2], stage + A_BYTES + block * BLOCK_BYTES, strip, part, offset[STEP_GROUP(part * 32)]);
#pragma unroll
        for (int product = 0; product < PRODUCTS; ++product) {
          const ulong rows_at = operand(stage + first_row * LINE + (part * PRODUCTS + product) * 32);
          WGMMA_FENCE;
          WGMMA(SUMS_0, codes[part % 2][product], rows_at, adds);
          WGMMA(SUMS_1, codes[part % 2][PRODUCTS + product], rows_at, adds);
          WGMMA_COMMIT;
          adds = 1;
#ifdef GROUP_K
          const int upto = part * 32 + (product + 1) * PRODUCT_K;
          if (GROUP_ENDS(upto, step, steps)) {
            const int group = STEP_GROUP(upto - 1);
            WGMMA_WAIT(0);
            FOR_EVERY_REGISTER(ADD_TILES)
            adds = 0;
          }
#endif
        }
        WGMMA_WAIT(PRODUCTS);
        if (part == 0 && step > 0 && lane == 0) barrier_arrive(empty + before * 8);
      }
      before = ring.stage;
      advance(&ring);
    }
    WGMMA_WAIT(0);
    if (lane == 0) barrier_arrive(empty + before * 8);
    FOR_EVERY_REGISTER(STORE_TILES)
  }
}
