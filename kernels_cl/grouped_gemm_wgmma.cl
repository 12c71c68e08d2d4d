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
#define COPY_ITEMS 128
#define ITEMS 384
#define OUT_STEP 4  // of a warp's 16 rows, in pieces of 32 columns
#define OUT_ROWS 4
#include "kernels_cl/lib/tensor_tile.clh"

#define WARP_PANELS (TILE_ROWS == 128 ? 4 : 2)  // of a multiplying warp group
#define PIECE 32                                // columns that a warp stores at once
#define PIECE_PITCH (PIECE + 8)
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

// Where an operand starts in local memory, with the 128-byte swizzle: groups of 8 rows are 1024 bytes apart, and panels
// BLOCK_BYTES.
inline ulong operand(uint address) {
  return (ulong)((address & 0x3ffff) >> 4) | (ulong)(BLOCK_BYTES >> 4) << 16 | (ulong)(1024 >> 4) << 32 | (ulong)1 << 62;
}

#define REGISTERS(x)                                                                                          \
  x "0, " x "1, " x "2, " x "3, " x "4, " x "5, " x "6, " x "7, " x "8, " x "9, " x "10, " x "11, " x "12, " x \
    "13, " x "14, " x "15"
#define HALF_SUMS REGISTERS("a") ", " REGISTERS("b") ", " REGISTERS("c") ", " REGISTERS("d")
#if TILE_ROWS == 128
#define SUMS HALF_SUMS ", " REGISTERS("e") ", " REGISTERS("f") ", " REGISTERS("g") ", " REGISTERS("h")
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
#define WGMMA_FENCE asm volatile("\n//A90 wgmma.fence.sync.aligned;\n" ::: "memory")
#define WGMMA_COMMIT asm volatile("\n//A90 wgmma.commit_group.sync.aligned;\n" ::: "memory")
#define WGMMA_WAIT(groups) asm volatile("\n//A90 wgmma.wait_group.sync.aligned %0;\n" ::"n"(groups) : "memory")
// What copies wrote to local memory, as far as this work-item knows of it, can then be read by wgmma.
#define PROXY_FENCE asm volatile("fence.proxy.async.shared::cta;" ::: "memory")
#define WARP_BARRIER asm volatile("bar.warp.sync 0xffffffff;" ::: "memory")

inline void barrier_init(uint barrier_at, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier_at), "r"(arrivals) : "memory");
}
inline void barrier_arrive(uint barrier_at) {
  asm volatile("{.reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0];}" ::"r"(barrier_at) : "memory");
}
// Arrives once this work-item's copies so far are done.
inline void barrier_arrive_after_copies(uint barrier_at) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier_at) : "memory");
}
// Until the barrier has left the phase of that parity.
inline void barrier_wait(uint barrier_at, uint parity) {
  int left;
  do {
    asm volatile("{.reg .pred left; mbarrier.try_wait.parity.shared::cta.b64 left, [%1], %2; selp.s32 %0, 1, 0, left;}"
                 : "=r"(left)
                 : "r"(barrier_at), "r"(parity)
                 : "memory");
  } while (!left);
}

// The next stage; the turn, 0 or 1, changes with every round.
typedef struct {
  uint stage, turn;
} Ring;
inline void advance(Ring* ring) {
  if (++ring->stage == STAGES) ring->stage = 0, ring->turn ^= 1;
}

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
  if (item == 0)
    for (int stage = 0; stage < STAGES; ++stage) barrier_init(full + stage * 8, COPY_ITEMS), barrier_init(empty + stage * 8, 8);
  barrier(CLK_LOCAL_MEM_FENCE);
  const int steps = (k + K_STEP - 1) / K_STEP;

  if (item < COPY_ITEMS) {
    asm volatile("\n//A90 setmaxnreg.dec.sync.aligned.u32 88;\n");
    Ring ring = {0, 1};
    for (int number = get_group_id(0);; number += get_num_groups(0)) {
      const Tile tile = find_tile(number, n, row_ends, rows, first_expert, experts, rows_per_expert);
      if (tile.rows.count == 0) break;
      const Copies copies = copies_of(&tile, a, a_index, index_divisor, a_rows, a_stride, weights, n, k);
      for (int step = 0; step < steps; ++step) {
        barrier_wait(empty + ring.stage * 8, ring.turn);  // at once in the first turn
        copy_stage(&copies, step, stages + ring.stage * STAGE_BYTES);
        barrier_arrive_after_copies(full + ring.stage * 8);
        advance(&ring);
      }
    }
    WAIT_FOR_COPIES(0);
    return;
  }

  asm volatile("\n//A90 setmaxnreg.inc.sync.aligned.u32 208;\n");
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
