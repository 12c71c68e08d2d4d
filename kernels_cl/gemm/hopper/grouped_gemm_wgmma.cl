// Grouped GEMM of 16-bit numbers on Hopper's tensor cores by wgmma. The kernel is persistent: the launch has as many
// work-groups as the device has compute units, and a work-group takes tiles in turn. A tile is up to TILE_ROWS rows of
// one expert by four panels. All tiles of an expert are equally high. Weights are the left operand, which has 64
// columns of them, so a product is as wide as its tile is high, in eights of rows. One producer warp group copies the
// operands to local memory, and two consumer warp groups multiply two panels each. Stages pass between them by
// mbarriers, so the next tile's operands arrive while the last tile's sums are stored. Sums run over k in ascending
// order, 16 at a time.
// -DSLICED=1: a work-group computes one K-slice of one tile.
// Source: PTX ISA 8.0, wgmma.mma_async and its register fragments.
enum { TILE_PANELS = 4, COPY_ITEMS = 128, ITEMS = 384, BOX_ROWS = 16 };
enum { PRODUCER_REGISTERS = 72, CONSUMER_REGISTERS = 216, EQUAL_HEIGHTS = 1, HALF_TILES = 0, STEP_LINES = 1 };
#include "kernels_cl/gemm/hopper/hopper.clh"
#include "kernels_cl/gemm/hopper/wgmma_sums.clh"
#include "kernels_cl/gemm/hopper/column_store.clh"

// sums = w * a for 8 * eights rows, plus the old sums if `adds`. `w` is stored as [k][column], hence transposed.
#define WGMMA(eights, sums, w, a, adds)                                                                              \
  asm volatile("{.reg .pred adds; setp.ne.s32 adds, %2, 0;\n//A90 wgmma.mma_async.sync.aligned.m64n%3k16.f32." TEXT( \
                   W_DTYPE) "." TEXT(W_DTYPE) " {" SUMS_##eights(sums) "}, %0, %1, adds, 1, 1, 1, 0;\n}" ::"l"(w),   \
               "l"(a), "r"(adds), "n"(8 * eights)                                                                    \
               : "memory")
// The main loop of a tile of 8 * eights rows. Returns the last step's stage, which the last products read until they
// are done.
#define MULTIPLY_OF(eights)                                                                               \
  INLINE Ring multiply_##eights(const WarpPlace* place, Ring* ring, int steps) {                          \
    Ring before = *ring;                                                                                  \
    for (int step = 0; step < steps; ++step) {                                                            \
      enter_stage(place, ring);                                                                           \
      const uint stage = stage_at(place, ring);                                                           \
      const ulong rows = operand(stage), columns = operand(stage + A_BYTES + place->panel * BLOCK_BYTES); \
      wgmma_fence();                                                                                      \
      _Pragma("unroll") for (int part = 0; part < K_STEP / 16; ++part) {                                  \
        const ulong of_rows = further(rows, part * 32), of_columns = further(columns, part * 16 * LINE);  \
        WGMMA(eights, "s", of_columns, of_rows, part == 0 ? step : 1);                                    \
        WGMMA(eights, "u", further(of_columns, BLOCK_BYTES), of_rows, part == 0 ? step : 1);              \
      }                                                                                                   \
      wgmma_commit();                                                                                     \
      WGMMA_WAIT(1);                                                                                      \
      if (step > 0) leave_stage(place, &before);                                                          \
      before = *ring;                                                                                     \
      advance(ring);                                                                                      \
    }                                                                                                     \
    return before;                                                                                        \
  }
MULTIPLY_OF(1)
MULTIPLY_OF(2)
MULTIPLY_OF(3)
MULTIPLY_OF(4)
MULTIPLY_OF(5)
MULTIPLY_OF(6)
MULTIPLY_OF(7)
MULTIPLY_OF(8)
MULTIPLY_OF(9)
MULTIPLY_OF(10)
MULTIPLY_OF(11)
MULTIPLY_OF(12)
MULTIPLY_OF(13)
MULTIPLY_OF(14)
MULTIPLY_OF(15)
MULTIPLY_OF(16)
MULTIPLY_OF(17)
MULTIPLY_OF(18)
#if TILE_ROWS == 160
MULTIPLY_OF(19)
MULTIPLY_OF(20)
#endif
INLINE Ring multiply_tile(const WarpPlace* place, Ring* ring, int steps, int rows) {
  switch ((rows + 7) / 8) {
    case 1: return multiply_1(place, ring, steps);
    case 2: return multiply_2(place, ring, steps);
    case 3: return multiply_3(place, ring, steps);
    case 4: return multiply_4(place, ring, steps);
    case 5: return multiply_5(place, ring, steps);
    case 6: return multiply_6(place, ring, steps);
    case 7: return multiply_7(place, ring, steps);
    case 8: return multiply_8(place, ring, steps);
    case 9: return multiply_9(place, ring, steps);
    case 10: return multiply_10(place, ring, steps);
    case 11: return multiply_11(place, ring, steps);
    case 12: return multiply_12(place, ring, steps);
    case 13: return multiply_13(place, ring, steps);
    case 14: return multiply_14(place, ring, steps);
    case 15: return multiply_15(place, ring, steps);
    case 16: return multiply_16(place, ring, steps);
    case 17: return multiply_17(place, ring, steps);
    case 18: return multiply_18(place, ring, steps);
#if TILE_ROWS == 160
    case 19: return multiply_19(place, ring, steps);
    case 20: return multiply_20(place, ring, steps);
#endif
  }
  return *ring;
}

// Reads the sums of sixteen rows: of the first panel the first and the last eight rows, then of the second panel.
#define READ_SIXTEEN(sixteen, sums)           \
  READ_SUMS("s", (sixteen)*2, (sums)[0]);     \
  READ_SUMS("s", (sixteen)*2 + 1, (sums)[1]); \
  READ_SUMS("u", (sixteen)*2, (sums)[2]);     \
  READ_SUMS("u", (sixteen)*2 + 1, (sums)[3])

// What a warp group needs to store the rows of a tile. It uses two pieces in turn. A warp that overwrites a piece has
// passed the other piece's barrier, and so have all warps that read the overwritten piece.
typedef struct {
  __global STORAGE(OUT_DTYPE)* out;  // the tile's first row
  long out_stride;
  int count, width, column, a_scale_bias;
  LaneColumns columns;
  Activation activation;
  int row_scale[LANE_ROWS];
  uint there_are[LANE_ROWS];
} Leaving;
typedef struct {
  __local uchar* room;
  int at, warp_group, strip;
} Pieces;
INLINE void warp_group_barrier(int warp_group) { asm volatile("bar.sync %0, 128;" ::"r"(1 + warp_group) : "memory"); }
INLINE void store_piece(Pieces* pieces, const float4 sums[2], uint there, int column, int width,
                        __global STORAGE(OUT_DTYPE)* to, long out_stride) {
  __local uchar* const piece = pieces->room + pieces->at * PIECE_BYTES;
  put_rows(sums[0], sums[1], piece, pieces->strip);
  warp_group_barrier(pieces->warp_group);
  store_rows(piece, pieces->strip, there, column, width, to, out_stride);
  pieces->at ^= 1;
}
// The scale of row `row` of the given sixteen. The lanes hold the scales by row, see find_lane_rows.
INLINE float scale_of_row(const int row_scale[LANE_ROWS], int sixteen, int row) {
  return as_float(lane_at(row_scale[sixteen / 2], sixteen % 2 * 16 + row));
}
INLINE void store_sixteen(const Leaving* of, Pieces* pieces, int sixteen, const float4 sums[4]) {
  float4 x[2], y[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = i * 8 + get_local_id(0) % 4 * 2;
    float2 scale_of = 1;
    if (HAS_SCALES)
      scale_of = (float2)(scale_of_row(of->row_scale, sixteen, row), scale_of_row(of->row_scale, sixteen, row + 1));
    x[i] = finish_sums(sums[i], &of->columns, 0, scale_of, of->a_scale_bias);
    y[i] = finish_sums(sums[2 + i], &of->columns, 1, scale_of, of->a_scale_bias);
    x[i] = activated(x[i], y[i], of->activation);
    if (!GATED) y[i] = activated(y[i], y[i], of->activation);
  }
  const uint there = of->there_are[sixteen / 2] >> (sixteen % 2 * 16) & 0xffff;
  __global STORAGE(OUT_DTYPE)* const to = of->out + sixteen * 16 * of->out_stride;
  store_piece(pieces, x, there, of->column, of->width, to, of->out_stride);
  if (!GATED) store_piece(pieces, y, there, of->column + PANEL, of->width, to, of->out_stride);
}
#if SLICED
#include "kernels_cl/gemm/hopper/k_slices.clh"
INLINE void leave_sixteen(const Leaving* of, Pieces* pieces, const Slices* slices, int sixteen, const float4 sums[4]) {
  hand_sums_over(slices, sixteen, sums);
}
INLINE void store_own_rows(const Leaving* of, Pieces* pieces, const Slices* slices) {
  meet_slices(slices, pieces->warp_group);
#pragma unroll
  for (int sixteen = 0; sixteen < TILE_ROWS / 16; ++sixteen) {
    if (sixteen * 16 >= of->count || sixteen % slices->count != slices->own) continue;
    float4 sums[4];
    add_slices(slices, sixteen, sums);
    store_sixteen(of, pieces, sixteen, sums);
  }
}
#else
typedef int Slices;
INLINE Slices slices_of(const Gemm* gemm, int tile, __local int* late) { return 0; }
INLINE void leave_sixteen(const Leaving* of, Pieces* pieces, const Slices* slices, int sixteen, const float4 sums[4]) {
  store_sixteen(of, pieces, sixteen, sums);
}
INLINE void store_own_rows(const Leaving* of, Pieces* pieces, const Slices* slices) {}
#endif
#define TAKE_SIXTEEN(sixteen)                         \
  if ((sixteen)*16 < of->count) {                     \
    READ_SIXTEEN(sixteen, sums);                      \
    leave_sixteen(of, pieces, slices, sixteen, sums); \
  }
INLINE void store_tile(const Leaving* of, Pieces* pieces, const Slices* slices) {
  float4 sums[4];
  TAKE_SIXTEEN(0)
  TAKE_SIXTEEN(1)
  TAKE_SIXTEEN(2)
  TAKE_SIXTEEN(3)
  TAKE_SIXTEEN(4)
  TAKE_SIXTEEN(5)
  TAKE_SIXTEEN(6)
  TAKE_SIXTEEN(7)
  TAKE_SIXTEEN(8)
#if TILE_ROWS == 160
  TAKE_SIXTEEN(9)
#endif
  store_own_rows(of, pieces, slices);
}

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void grouped_gemm_wgmma(GROUPED_GEMM_BUFFERS,
                                                                                    const grouped_gemm_args given) {
  const grouped_gemm_args args = given;
  __local uchar stages[STAGES * STAGE_BYTES] __attribute__((aligned(1024)));
  __local uchar all_pieces[2 * 2 * PIECE_BYTES] __attribute__((aligned(16)));  // two for each warp group
  __local ulong barriers[2 * STAGES];
  __local int late[2];  // one for each warp group
  const Gemm gemm = gemm_of(GROUPED_GEMM_BUFFER_NAMES, &args);
  const int item = get_local_id(0), lane = item % 32;
  const uint full = shared_address(barriers), empty = full + STAGES * 8;
  start_barriers(full, empty);

  if (item < COPY_ITEMS) {
    produce_tiles(&gemm, stages, full, empty, 0, 0);
    return;
  }

  take_registers();
  asm volatile(".reg .f32 s<%0>, u<%0>;" ::"n"(TILE_ROWS / 2));
  // Computed from `item` itself: ptxas then knows that both are the same for a whole warp, and keeps values that depend
  // on them in uniform registers.
  const int warp_group = item / 128 - 1, strip = item / 32 % 4;
  const WarpPlace place = {shared_address(stages), full, empty, warp_group * 2, strip};
  Pieces pieces = {all_pieces + warp_group * 2 * PIECE_BYTES, 0, warp_group, strip};
  Leaving leaving;
  leaving.out_stride = args.out_stride, leaving.width = out_width(args.n), leaving.a_scale_bias = args.a_scale_bias;
  leaving.activation = activation_of(&gemm);
  const Steps steps = steps_of(args.k);
  Ring ring = {0, 0};
  int number = get_group_id(0);
  TileSearch search = start_search(&gemm);
  Tile tile = find_tile(&search, &gemm, number);
  while (tile.rows.count != 0) {
    const Ring last = multiply_tile(&place, &ring, steps.end - steps.begin, tile.rows.count);
    // Prepares the epilogue while the last products run.
    const Slices slices = slices_of(&gemm, number, late + warp_group);
    number += get_num_groups(0);
    const Tile next = find_tile(&search, &gemm, number);
    leaving.out = gemm.out + tile.rows.first * args.out_stride, leaving.count = tile.rows.count;
    leaving.column = (tile.first_panel + warp_group * 2 / (1 + GATED)) * PANEL;
    const Epilogue epilogue = expert_epilogue(&gemm, tile.rows.expert);
    leaving.columns = lane_columns_of(&epilogue, leaving.column + strip * 16 + lane / 4, args.n);
    find_lane_rows(leaving.row_scale, leaving.there_are, lane, &tile, &gemm);
    WGMMA_WAIT(0);
    leave_stage(&place, &last);
    store_tile(&leaving, &pieces, &slices);
#if SLICED
    break;  // there is no next tile, so the sums' registers are free
#endif
    tile = next;
  }
}
