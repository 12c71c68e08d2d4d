// Grouped GEMM of 16-bit numbers on Hopper's tensor cores by wgmma, for as many work-groups as the device has compute
// units: each takes tiles of up to TILE_ROWS rows of one expert by four panels in turn. The tiles of an expert are as
// high as each other, and products as wide as a tile is high, in eights of rows: weights are the left operand, which
// has 64 columns. One warp group brings the operands to local memory, two multiply two panels each. A stage passes
// between them by barriers that count arrivals, so the next tile's operands travel while the last tile's sums are
// stored. Sums run over k in ascending order, 16 at a time.
//
// The driver compiles OpenCL C for sm_90, which lacks wgmma and setmaxnreg: instructions after //A90 are comments until
// runtime/nv_sm90a.cpp turns the program's PTX into one for sm_90a.
// Source: PTX ISA 8.0, sections on wgmma.mma_async, its matrix descriptor and register fragments, mbarrier, setmaxnreg.
enum { TILE_PANELS = 4, COPY_ITEMS = 128, ITEMS = 384, BOX_ROWS = 16 };
enum { COPY_REGISTERS = 72, MULTIPLY_REGISTERS = 216, EQUAL_HEIGHTS = 1 };
#include "kernels_cl/gemm/hopper/hopper.clh"
#include "kernels_cl/gemm/hopper/wgmma_sums.clh"
#include "kernels_cl/gemm/hopper/column_store.clh"

enum { LANE_ROWS = (TILE_ROWS + 31) / 32 };

// sums = w a for so many eights of rows, plus sums if `adds`; `w` is stored by k.
#define WGMMA(eights, sums, w, a, adds)                                                                              \
  asm volatile("{.reg .pred adds; setp.ne.s32 adds, %2, 0;\n//A90 wgmma.mma_async.sync.aligned.m64n%3k16.f32." TEXT( \
                   W_DTYPE) "." TEXT(W_DTYPE) " {" SUMS_##eights(sums) "}, %0, %1, adds, 1, 1, 1, 0;\n}" ::"l"(w),   \
               "l"(a), "r"(adds), "n"(8 * eights)                                                                    \
               : "memory")
// All steps of a tile of so many eights of rows.
#define MULTIPLY(eights)                                                                                        \
  case eights:                                                                                                  \
    for (int step = 0; step < steps; ++step) {                                                                  \
      barrier_wait(full + ring.stage * 8, ring.parity);                                                         \
      if (!A_IN_ORDER) proxy_fence();                                                                           \
      const uint rows_at = shared_address(stages) + ring.stage * STAGE_BYTES, columns_at = rows_at + panels_at; \
      wgmma_fence();                                                                                            \
      _Pragma("unroll") for (int part = 0; part < K_STEP / 16; ++part) {                                        \
        WGMMA(eights, "s", operand(columns_at + part * 16 * LINE), operand(rows_at + part * 32), step + part);  \
        WGMMA(eights, "u", operand(columns_at + BLOCK_BYTES + part * 16 * LINE), operand(rows_at + part * 32),  \
              step + part);                                                                                     \
      }                                                                                                         \
      wgmma_commit();                                                                                           \
      WGMMA_WAIT(1);                                                                                            \
      if (step > 0 && lane == 0) barrier_arrive(empty + before * 8);                                            \
      before = ring.stage;                                                                                      \
      advance(&ring);                                                                                           \
    }                                                                                                           \
    break;

#define GROUP_BARRIER asm volatile("bar.sync %0, 128;" ::"r"(1 + half_group) : "memory")
// There are two pieces in turn: who writes one has met those who read it at the other one's barrier.
#define STORE_PIECE(sums, at)                                                                         \
  put_rows(sums[0], sums[1], pieces + piece * PIECE_BYTES, strip);                                    \
  GROUP_BARRIER;                                                                                      \
  store_rows(pieces + piece * PIECE_BYTES, strip, there, at, out_width(args.n), to, args.out_stride); \
  piece ^= 1;
// Row `row` of sixteen, of values that lanes hold by row.
#define SCALE_OF_ROW(sixteen, row) as_float(lane_at(row_scale[(sixteen) / 2], (sixteen) % 2 * 16 + (row)))
#define STORE_SIXTEEN(sixteen)                                                                             \
  if (sixteen * 16 < tile.rows.count) {                                                                    \
    float4 x[2], y[2];                                                                                     \
    READ_SUMS("s", sixteen * 2, x[0]);                                                                     \
    READ_SUMS("s", sixteen * 2 + 1, x[1]);                                                                 \
    READ_SUMS("u", sixteen * 2, y[0]);                                                                     \
    READ_SUMS("u", sixteen * 2 + 1, y[1]);                                                                 \
    _Pragma("unroll") for (int i = 0; i < 2; ++i) {                                                        \
      const int row = i * 8 + lane % 4 * 2;                                                                \
      float2 scale_of = 1;                                                                                 \
      if (HAS_SCALES) scale_of = (float2)(SCALE_OF_ROW(sixteen, row), SCALE_OF_ROW(sixteen, row + 1));     \
      x[i] = finish_sums(x[i], &columns, 0, scale_of, args.a_scale_bias);                                  \
      y[i] = finish_sums(y[i], &columns, 1, scale_of, args.a_scale_bias);                                  \
      x[i] = activated(x[i], y[i], activation);                                                            \
      if (!GATED) y[i] = activated(y[i], y[i], activation);                                                \
    }                                                                                                      \
    const uint there = there_are[sixteen / 2] >> (sixteen % 2 * 16) & 0xffff;                              \
    __global STORAGE(OUT_DTYPE)* const to = gemm.out + (tile.rows.first + sixteen * 16) * args.out_stride; \
    STORE_PIECE(x, column)                                                                                 \
    if (!GATED) {                                                                                          \
      STORE_PIECE(y, column + PANEL)                                                                       \
    }                                                                                                      \
  }

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void grouped_gemm_wgmma(GROUPED_GEMM_BUFFERS,
                                                                                    const grouped_gemm_args given) {
  const grouped_gemm_args args = given;
  __local uchar stages[STAGES * STAGE_BYTES] __attribute__((aligned(1024)));
  __local uchar all_pieces[2 * 2 * PIECE_BYTES] __attribute__((aligned(16)));  // two of a warp group
  __local ulong barriers[2 * STAGES];
  const Gemm gemm = gemm_of(GROUPED_GEMM_BUFFER_NAMES, &args);
  const int item = get_local_id(0), lane = item % 32;
  const uint full = shared_address(barriers), empty = full + STAGES * 8;
  start_barriers(full, empty);
  const int steps = (args.k + K_STEP - 1) / K_STEP;

  if (item < COPY_ITEMS) {
    copy_tiles(&gemm, stages, full, empty, 0);
    return;
  }

  take_registers();
  asm volatile(".reg .f32 s<%0>, u<%0>;" ::"n"(TILE_ROWS / 2));
  const int warp = (item - COPY_ITEMS) / 32, half_group = warp / 4, strip = warp % 4;
  const uint panels_at = A_BYTES + half_group * 2 * BLOCK_BYTES;
  __local uchar* const pieces = all_pieces + half_group * 2 * PIECE_BYTES;
  const Activation activation = activation_of(&gemm);
  Ring ring = {0, 0};
  int piece = 0;
  int number = get_group_id(0);
  TileSearch search = start_search(&gemm);
  Tile tile = find_tile(&search, &gemm, number);
  while (tile.rows.count != 0) {
    uint before = 0;  // the stage of the last step
    switch ((tile.rows.count + 7) / 8) {
      MULTIPLY(1)
      MULTIPLY(2) MULTIPLY(3) MULTIPLY(4) MULTIPLY(5) MULTIPLY(6) MULTIPLY(7) MULTIPLY(8) MULTIPLY(9) MULTIPLY(10)
          MULTIPLY(11) MULTIPLY(12) MULTIPLY(13) MULTIPLY(14) MULTIPLY(15) MULTIPLY(16) MULTIPLY(17) MULTIPLY(18)
#if TILE_ROWS == 160
              MULTIPLY(19) MULTIPLY(20)
#endif
    }
    // While the last products run.
    number += get_num_groups(0);
    const Tile next = find_tile(&search, &gemm, number);
    const int column = (tile.first_panel + half_group * 2 / (1 + GATED)) * PANEL;
    const Epilogue epilogue = expert_epilogue(&gemm, tile.rows.expert);
    const LaneColumns columns = lane_columns_of(&epilogue, column + strip * 16 + lane / 4, args.n);
    int source[LANE_ROWS];  // of rows lane, lane + 32, ..
    find_sources(source, LANE_ROWS, &tile, lane, 32, row_index_of(&gemm));
    int row_scale[LANE_ROWS];
    uint there_are[LANE_ROWS];  // bit l: row l, l + 32, ..
#pragma unroll
    for (int i = 0; i < LANE_ROWS; ++i)
      row_scale[i] = source[i] >= 0 ? as_int(row_scale_of(&gemm, source[i])) : 0,
      there_are[i] = lanes_where(source[i] >= 0);
    WGMMA_WAIT(0);
    if (lane == 0) barrier_arrive(empty + before * 8);
    STORE_SIXTEEN(0)
    STORE_SIXTEEN(1) STORE_SIXTEEN(2) STORE_SIXTEEN(3) STORE_SIXTEEN(4) STORE_SIXTEEN(5) STORE_SIXTEEN(6)
        STORE_SIXTEEN(7) STORE_SIXTEEN(8)
#if TILE_ROWS == 160
            STORE_SIXTEEN(9)
#endif
                tile = next;
  }
}
