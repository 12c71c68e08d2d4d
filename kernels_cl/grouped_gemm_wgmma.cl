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
#define OUT_STEP 4  // of a warp's 16 rows, in pieces of 32 columns
#define OUT_ROWS 4
#include "kernels_cl/lib/hopper.clh"

#define WARP_PANELS (TILE_ROWS == 128 ? 4 : 2)  // of a multiplying warp group
#define PIECE 32                                // columns that a warp stores at once
#define PIECE_PITCH (PIECE + 8)
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
// Register 4 j + i of a lane is row lane / 4 (+ 8 for i = 2, 3) and column 8 j + lane % 4 * 2 (+ 1 for odd i).
#define STORE_PIECE(x, number)                                                                                      \
  {                                                                                                                 \
    asm volatile("st.shared.v2.f32 [%0], {" x "0, " x "1}; st.shared.v2.f32 [%1], {" x "2, " x "3};\n"              \
                 "st.shared.v2.f32 [%0 + 32], {" x "4, " x "5}; st.shared.v2.f32 [%1 + 32], {" x "6, " x "7};\n"    \
                 "st.shared.v2.f32 [%0 + 64], {" x "8, " x "9}; st.shared.v2.f32 [%1 + 64], {" x "10, " x "11};\n"  \
                 "st.shared.v2.f32 [%0 + 96], {" x "12, " x "13}; st.shared.v2.f32 [%1 + 96], {" x "14, " x "15};"  \
                 ::"r"(fragment), "r"(fragment + 8 * PIECE_PITCH * 4) : "memory");                                  \
    WARP_BARRIER;                                                                                                   \
    STORE_SUMS(tile, out_rows, warp_row + lane / 8, piece + lane / 8 * PIECE_PITCH + lane % 8 * 4, PIECE_PITCH,     \
               warp_column + (number)*PIECE + lane % 8 * 4)                                                         \
    WARP_BARRIER;                                                                                                   \
  }

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void grouped_gemm_wgmma(GROUPED_GEMM_PARAMETERS) {
  __local uchar stages[STAGES * STAGE_BYTES] __attribute__((aligned(1024)));
  __local float pieces[8 * 16 * PIECE_PITCH];
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
  const int warp_column = TILE_ROWS == 128 ? 0 : half_group * WARP_PANELS * PANEL;
  const uint rows_at = TILE_ROWS == 128 ? half_group * 64 * LINE : 0;
  const uint panels_at = A_BYTES + (TILE_ROWS == 128 ? 0 : half_group * WARP_PANELS * BLOCK_BYTES);
  __local float* const piece = pieces + warp * 16 * PIECE_PITCH;
  const uint fragment = shared_address(piece + lane / 4 * PIECE_PITCH + lane % 4 * 2);
  Ring ring = {0, 0};
  for (int number = get_group_id(0);; number += get_num_groups(0)) {
    const Tile tile = find_tile(number, n, row_ends, rows, first_expert, experts, rows_per_expert);
    if (tile.rows.count == 0) break;
    const OutRows out_rows = out_rows_of(&tile, warp_row + lane / 8, a_index, index_divisor, a_rows, a_scale);
    uint before = 0;  // the stage of the last step
    for (int step = 0; step < steps; ++step) {
      barrier_wait(full + ring.stage * 8, ring.turn);
      PROXY_FENCE;
      const uint stage = shared_address(stages) + ring.stage * STAGE_BYTES;
      WGMMA_FENCE;
#pragma unroll
      for (int part = 0; part < K_STEP / 16; ++part)
        WGMMA(operand(stage + rows_at + part * 32), operand(stage + panels_at + part * 16 * LINE), step + part);
      WGMMA_COMMIT;
      WGMMA_WAIT(1);
      if (step > 0 && lane == 0) barrier_arrive(empty + before * 8);
      before = ring.stage;
      advance(&ring);
    }
    WGMMA_WAIT(0);
    if (lane == 0) barrier_arrive(empty + before * 8);
    STORE_PIECE("a", 0) STORE_PIECE("b", 1) STORE_PIECE("c", 2) STORE_PIECE("d", 3)
#if TILE_ROWS == 128
    STORE_PIECE("e", 4) STORE_PIECE("f", 5) STORE_PIECE("g", 6) STORE_PIECE("h", 7)
#endif
  }
}
