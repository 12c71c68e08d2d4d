// Grouped GEMM on Hopper's tensor cores by wgmma, for as many work-groups as the device has compute units: each takes
// tiles of TILE_ROWS rows of one expert by four panels in turn. One warp group brings the operands to local memory, two
// multiply them: 64 of 128 rows each, or two of the panels each for 64 rows. A stage passes between them by barriers
// that count arrivals, so the next tile's operands travel while the last tile's sums are stored. Sums run over k in
// ascending order, 16 at a time.
//
// The driver compiles OpenCL C for sm_90, which lacks wgmma and setmaxnreg: instructions after //A90 are comments until
// runtime/nv_sm90a.cpp turns the program's PTX into one for sm_90a. The sums are registers that the PTX declares: 16 of
// one letter hold 32 columns.
// Source: PTX ISA 8.0, sections on wgmma.mma_async, its matrix descriptor and register fragments, mbarrier, setmaxnreg.
#define TILE_PANELS 4
#include "kernels_cl/lib/hopper.clh"
#include "kernels_cl/lib/stage_scales.clh"
#include "kernels_cl/lib/row_store.clh"

#define WARP_PANELS (TILE_ROWS == 128 ? 4 : 2)  // of a multiplying warp group
#define HALF_SUMS FOUR_REGISTERS("a", "b", "c", "d")
#if TILE_ROWS == 128
#define SUMS HALF_SUMS ", " FOUR_REGISTERS("e", "f", "g", "h")
#define SHAPE "m64n256k16"
#else
#define SUMS HALF_SUMS
#define SHAPE "m64n128k16"
#endif

// sums = a w, plus sums if `adds`; `w` is stored by k.
#define WGMMA(a, w, adds)                                                                                       \
  asm volatile("{.reg .pred adds; setp.ne.s32 adds, %2, 0;\n//A90 wgmma.mma_async.sync.aligned." SHAPE          \
               ".f32." TEXT(W_DTYPE) "." TEXT(W_DTYPE) " {" SUMS "}, %0, %1, adds, 1, 1, 0, 1;\n}" ::"l"(a), \
               "l"(w), "r"(adds)                                                                                \
               : "memory")
#define READ4(x, n0, n1, n2, n3, sum)                                                                         \
  asm volatile("mov.f32 %0, " x n0 "; mov.f32 %1, " x n1 "; mov.f32 %2, " x n2 "; mov.f32 %3, " x n3 ";"      \
               : "=f"((sum).s0), "=f"((sum).s1), "=f"((sum).s2), "=f"((sum).s3))
#define PUT_COLUMNS(x, x_up, n0, n1, n2, n3, column)                                              \
  {                                                                                               \
    float4 sum, up;                                                                               \
    READ4(x, n0, n1, n2, n3, sum);                                                                \
    READ4(x_up, n0, n1, n2, n3, up);                                                              \
    put_columns(OUTPUT(sum, up, first_column + (column)), (column) % PIECE,                       \
                pieces + (column) / PIECE % 2 * PIECE_BYTES);                                     \
  }
// The number-th 32 columns of `out`, whose sums are x, of a gated activation with x_up. Pieces are in two places in turn.
#define STORE_COLUMNS(x, x_up, number)                                                                          \
  PUT_COLUMNS(x, x_up, "0", "1", "2", "3", (number)*32) PUT_COLUMNS(x, x_up, "4", "5", "6", "7", (number)*32 + 8)      \
  PUT_COLUMNS(x, x_up, "8", "9", "10", "11", (number)*32 + 16)                                                  \
  PUT_COLUMNS(x, x_up, "12", "13", "14", "15", (number)*32 + 24)                                                \
  if (((number) + 1) * 32 % PIECE == 0) {                                                                       \
    const int piece = (number)*32 / PIECE;                                                                      \
    WARP_BARRIER;                                                                                               \
    store_piece(pieces + piece % 2 * PIECE_BYTES, &out_rows, out, out_stride, first_column + piece * PIECE, OUT_WIDTH); \
  }

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void grouped_gemm_wgmma(GROUPED_GEMM_PARAMETERS) {
  __local uchar stages[STAGES * STAGE_BYTES] __attribute__((aligned(1024)));
  __local uchar all_pieces[8 * 2 * PIECE_BYTES] __attribute__((aligned(16)));  // two of a warp
  __local ulong barriers[2 * STAGES];
  OFFSET_POINTERS;
  const int item = get_local_id(0), lane = item % 32;
  const uint full = shared_address(barriers), empty = full + STAGES * 8;
  START_BARRIERS(full, empty);
  const int steps = (k + K_STEP - 1) / K_STEP;

  if (item < COPY_ITEMS) {
    COPY_TILES(stages, full, empty)
    return;
  }

  MORE_REGISTERS;
  asm volatile(".reg .f32 a<16>, b<16>, c<16>, d<16>, e<16>, f<16>, g<16>, h<16>;");
  const int warp = item / 32 - 4, half_group = warp / 4;
  const int warp_row = TILE_ROWS == 128 ? warp * 16 : warp % 4 * 16;
  const int warp_column = TILE_ROWS == 128 ? 0 : half_group * (WARP_PANELS / (1 + GATED)) * PANEL;
  const uint rows_at = TILE_ROWS == 128 ? half_group * 64 * LINE : 0;
  const uint panels_at = A_BYTES + (TILE_ROWS == 128 ? 0 : half_group * WARP_PANELS * BLOCK_BYTES);
  __local uchar* const pieces = all_pieces + warp * 2 * PIECE_BYTES;
  const Activation activation = {alpha, limit, up_bias};
  Ring ring = {0, 0};
  int number = get_group_id(0);
  START_SEARCH(search);
  Tile tile = FIND_TILE(search, number);
  while (tile.rows.count != 0) {
    const bool has_rows = TILE_ROWS == 64 || half_group * 64 < tile.rows.count;
    uint before = 0;  // the stage of the last step
    for (int step = 0; step < steps; ++step) {
      barrier_wait(full + ring.stage * 8, ring.turn);
      if (has_rows) {
        if (!A_IN_ORDER) PROXY_FENCE;
        const uint stage = shared_address(stages) + ring.stage * STAGE_BYTES;
        WGMMA_FENCE;
#pragma unroll
        for (int part = 0; part < K_STEP / 16; ++part)
          WGMMA(operand(stage + rows_at + part * 32), operand(stage + panels_at + part * 16 * LINE), step + part);
        WGMMA_COMMIT;
      }
      WGMMA_WAIT(1);
      if (step > 0 && lane == 0) barrier_arrive(empty + before * 8);
      before = ring.stage;
      advance(&ring);
    }
    // While the last products run.
    number += get_num_groups(0);
    const Tile next = FIND_TILE(search, number);
    const OutRows out_rows = out_rows_of(&tile, warp_row, a_index, index_divisor, a_rows, a_scale);
    const Epilogue epilogue = EPILOGUE_OF(tile.rows.expert);
    const int first_column = tile.first_panel * PANEL + warp_column;
    WGMMA_WAIT(0);
    if (lane == 0) barrier_arrive(empty + before * 8);
    if (out_rows.stored != 0) {
      WARP_BARRIER;  // the last tile's pieces are read
#if GATED
      STORE_COLUMNS("a", "c", 0) STORE_COLUMNS("b", "d", 1)
#if TILE_ROWS == 128
      STORE_COLUMNS("e", "g", 2) STORE_COLUMNS("f", "h", 3)
#endif
#else
      STORE_COLUMNS("a", "a", 0) STORE_COLUMNS("b", "b", 1) STORE_COLUMNS("c", "c", 2) STORE_COLUMNS("d", "d", 3)
#if TILE_ROWS == 128
      STORE_COLUMNS("e", "e", 4) STORE_COLUMNS("f", "f", 5) STORE_COLUMNS("g", "g", 6) STORE_COLUMNS("h", "h", 7)
#endif
#endif
    }
    tile = next;
  }
}
