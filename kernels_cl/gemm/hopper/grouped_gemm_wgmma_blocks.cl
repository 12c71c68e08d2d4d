// Grouped GEMM of f8_e4m3 on Hopper's tensor cores by wgmma, where rows of `a` and panels of columns have a block scale
// for each 128 k. Persistent like grouped_gemm_wgmma, with tiles of TILE_ROWS rows by four panels. Rows are the left
// operand. A consumer warp group has 64 rows, and multiplies them by one pair of panels, then by the other. In a half
// tile, which has at most 64 rows, each consumer warp group has all rows and one pair of panels. Both operands come
// from local memory. The consumer warp groups start products in turn, so that one adds up its sums while the products
// of the other run. Otherwise both would multiply at the same time and add at the same time.
//
// A lane's sums are of two rows, so the scales of a group are four numbers. If columns were the left operand, as in
// grouped_gemm_wgmma_codes, a lane would have sums of as many rows as a product is wide, and reading their scales would
// occupy local memory longer than both operands do.
// Source: PTX ISA 8.0, wgmma.mma_async of 8-bit floats and its register fragments.
enum { TILE_PANELS = 4, COPY_ITEMS = 128, ITEMS = 384, BOX_ROWS = 64, EQUAL_HEIGHTS = 0, STEP_LINES = 1 };
enum { PRODUCER_REGISTERS = 56, CONSUMER_REGISTERS = 224, HALF_TILES = 1, GROUP_ROWS = TILE_ROWS / 2 };
enum { TILE_PAIRS = TILE_PANELS / 2, PAIR_TILES = 16, PAIR_STRIPS = 8 };
#define PANEL_SCALES
#include "kernels_cl/gemm/nvidia/row_store.clh"
#include "kernels_cl/gemm/hopper/hopper.clh"
#if QUANTIZES
#include "kernels_cl/gemm/hopper/row_codes.clh"
#endif

enum { PAIR_COLUMNS = OUT_PANELS * PANEL / TILE_PAIRS };  // of `out`

// A warp's share of a tile. first_row, first_pair and first_column (in `out`) are the same for its warp group. Of the
// warp group's rows the warp has the strip-th sixteen.
typedef struct {
  bool is_half_tile;
  int warp_group, strip, first_row, first_pair, first_column, columns;
} Share;
// All lanes compute the same values. largest_of_lanes tells ptxas so, which then keeps wgmma's operands in uniform
// registers.
INLINE Share share_of(const Tile* tile, const WarpPlace* place) {
  const int warp_group = place->panel / 2;
  const bool is_half_tile = lanes_where(tile->rows.count > GROUP_ROWS) == 0;
  const Share share = {is_half_tile,
                       warp_group,
                       place->strip,
                       largest_of_lanes(is_half_tile ? 0 : warp_group * GROUP_ROWS),
                       largest_of_lanes(is_half_tile ? warp_group : 0),
                       tile->first_panel * PANEL + (is_half_tile ? warp_group * PAIR_COLUMNS : 0),
                       is_half_tile ? PAIR_COLUMNS : TILE_PAIRS * PAIR_COLUMNS};
  return share;
}

// A lane's totals, [pair of panels][t: eight lines of the pair][two rows by two lines], see two_columns.
typedef struct {
  float of[TILE_PAIRS][PAIR_TILES][4];
} Totals;

// sums = rows * columns, plus the old sums if `adds`.
INLINE void wgmma(ulong rows, ulong columns, int adds) {
  asm volatile(
      "{.reg .pred adds; setp.ne.s32 adds, %2, 0;\n//A90 wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 "
      "{" FOUR_REGISTERS("a", "b", "c", "d") "}, %0, %1, adds, 1, 1;\n}" ::"l"(rows),
      "l"(columns), "r"(adds)
      : "memory");
}
// total += sum * scale, for two rows.
#define ADD4(x, t0, t1, t2, t3, total, scale)                                                           \
  asm volatile("fma.rn.f32 %0, " x t0 ", %4, %0; fma.rn.f32 %1, " x t1 ", %4, %1; fma.rn.f32 %2, " x t2 \
               ", %5, %2; fma.rn.f32 %3, " x t3 ", %5, %3;"                                             \
               : "+f"((total)[0]), "+f"((total)[1]), "+f"((total)[2]), "+f"((total)[3])                 \
               : "f"((scale).s0), "f"((scale).s1))
#define ADD16(x, t, scale)                                       \
  ADD4(x, "0", "1", "2", "3", totals->of[pair][t], scale);       \
  ADD4(x, "4", "5", "6", "7", totals->of[pair][t + 1], scale);   \
  ADD4(x, "8", "9", "10", "11", totals->of[pair][t + 2], scale); \
  ADD4(x, "12", "13", "14", "15", totals->of[pair][t + 3], scale);

// Warp group g awaits its turn at named barrier FIRST_TURN + g. At first warp group 1 gives warp group 0 its turn.
enum { FIRST_TURN = 4 };
INLINE void take_turn(int warp_group) { asm volatile("bar.sync %0, 256;" ::"r"(FIRST_TURN + warp_group) : "memory"); }
INLINE void give_turn(int warp_group) {
  asm volatile("bar.arrive %0, 256;" ::"r"(FIRST_TURN + 1 - warp_group) : "memory");
}

// The main loop of a tile. Both consumer warp groups call it.
INLINE void multiply_blocks(Totals* totals, Ring* ring, int steps, const WarpPlace* place, const Share* share,
                            const __local StageScales* stage_scales) {
  const int row = share->first_row + share->strip * 16 + get_local_id(0) % 32 / 4;
  for (int step = 0; step < steps; ++step) {
    enter_stage(place, ring);
    const uint stage = stage_at(place, ring);
    const ulong rows = operand(stage + share->first_row * LINE),
                columns = operand(stage + A_BYTES + share->first_pair * 2 * BLOCK_BYTES);
    const __local StageScales* const scales = stage_scales + ring->stage;
    const float2 of_rows = (float2)(scales->rows[row], scales->rows[row + 8]);
#pragma unroll
    for (int pair = 0; pair < TILE_PAIRS; ++pair) {
      if (pair > 0 && share->is_half_tile) break;
      const int panel = (share->first_pair + pair) * 2;
      take_turn(share->warp_group);
      wgmma_fence();
#pragma unroll
      for (int product = 0; product < K_STEP / 32; ++product)
        wgmma(further(rows, product * 32), further(columns, pair * 2 * BLOCK_BYTES + product * 32), product);
      wgmma_commit();
      give_turn(share->warp_group);
      const float2 low = of_rows * panel_scale(scales, panel), high = of_rows * panel_scale(scales, panel + 1);
      WGMMA_WAIT(0);
      ADD16("a", 0, low)
      ADD16("b", 4, low)
      ADD16("c", 8, high)
      ADD16("d", 12, high)
    }
    leave_stage(place, ring);
    advance(ring);
  }
}

// The lines of a K-major panel are its columns in the order of k_major_line, so a lane has four adjacent columns of the
// strip-th 16. Returns two of them, from the first-th on: in row lane / 4, then in row lane / 4 + 8.
INLINE float4 two_columns(const Totals* totals, int pair, int strip, int first) {
  const int even = 2 * strip, odd = even + 1, i = first / 2;
  return (float4)(totals->of[pair][even][i], totals->of[pair][odd][i], totals->of[pair][even][2 + i],
                  totals->of[pair][odd][2 + i]);
}
// What `out` gets in two columns of the strip-th 16, activation included; `column`: the first of the two, in `out`
INLINE float4 two_numbers(const Totals* totals, const Gemm* gemm, const Epilogue* epilogue, const OutRows* rows,
                          int strip, int first, int column) {
  const int strips = PAIR_STRIPS / (1 + GATED), pair = strip / strips;
  return output_of(gemm, two_columns(totals, pair, strip % strips, first),
                   two_columns(totals, pair, GATED ? strip % strips + strips : strip % strips, first), epilogue, rows,
                   column);
}

// Stores a warp's sixteen rows to `out`, one piece at a time.
INLINE void store_numbers(const Totals* totals, const Gemm* gemm, const Tile* tile, const OutRows* rows,
                          const Share* share, __local uchar* piece) {
  const int first_column = share->first_column, of_lane = get_local_id(0) % 4 * 4;
  const Epilogue epilogue = expert_epilogue(gemm, tile->rows.expert);
#pragma unroll
  for (int strip = 0; strip < OUT_PANELS * PANEL / 16; ++strip) {
    if (strip == PAIR_COLUMNS / 16 && share->is_half_tile) break;
#pragma unroll
    for (int first = 0; first < 4; first += 2) {
      const int column = strip * 16 + of_lane + first;
      put_columns(two_numbers(totals, gemm, &epilogue, rows, strip, first, first_column + column), column % PIECE,
                  piece);
    }
    const int stored = (strip + 1) * 16;
    if (stored % PIECE != 0) continue;
    warp_barrier();
    store_piece(piece, rows, gemm->out, gemm->args.out_stride, first_column + stored - PIECE, out_width(gemm->args.n));
    warp_barrier();
  }
}

#if QUANTIZES
// Stores a warp's rows of codes from a piece to `q`: the first `count` codes of each row, at most 128.
INLINE void store_code_rows(const __local uchar* piece, const OutRows* rows, __global uchar* to, long stride,
                            int count) {
  const int lane = get_local_id(0) % 32, chunk = lane % 8;
  const bool aligned = ((ulong)to | stride | count) % 16 == 0;
  for (int row = lane / 8; row < 16; row += 4) {
    const __local uchar* const from = piece + row * LINE + (chunk ^ row % 8) * 16;
    const bool stored = rows->stored >> row & 1;
    __global uchar* const at = to + row * stride + chunk * 16;
    if (aligned)
      store16(at, *(const __local uint4*)from, stored && chunk * 16 < count);
    else
      for (int i = 0; i < 16; i += 2)
        store2(at + i, *(const __local ushort*)(from + i), stored && chunk * 16 + i < count);
  }
}
// For a group of columns that is wider than one pair's, in a half tile: takes the max of the largest magnitudes of both
// warp groups, which have the same rows. Only the two warps of the same strip meet.
enum { FIRST_STRIP = 6 };
INLINE void strip_barrier(int strip) { asm volatile("bar.sync %0, 64;" ::"r"(FIRST_STRIP + strip) : "memory"); }
INLINE void add_other_columns(int largest[2], const Share* share, __local int met[2][GROUP_ROWS]) {
  const int lane = get_local_id(0) % 32, row = share->strip * 16 + lane / 4;
  strip_barrier(share->strip);  // the previous tile's values have been read
#pragma unroll
  for (int last = 0; last < 2; ++last)
    if (lane % 4 == 0) met[share->warp_group][row + last * 8] = largest[last];
  strip_barrier(share->strip);
#pragma unroll
  for (int last = 0; last < 2; ++last) largest[last] = max(largest[last], met[1 - share->warp_group][row + last * 8]);
}
// Quantizes a warp's sixteen rows and stores their codes to `q`. The four lanes that share two rows find the scales of
// these rows together.
INLINE void store_codes(const Totals* totals, const Gemm* gemm, const Tile* tile, const OutRows* rows,
                        const Share* share, __local uchar* piece, __local int met[2][GROUP_ROWS]) {
  const grouped_gemm_args* const args = &gemm->args;
  const int lane = get_local_id(0) % 32, first_column = share->first_column,
            columns = min(out_width(args->n) - first_column, share->columns);  // whole panels
  const bool meets = GROUP > PAIR_COLUMNS && share->is_half_tile;
  const Epilogue epilogue = expert_epilogue(gemm, tile->rows.expert);
  const Rules rules = rules_of(args);
#pragma unroll
  for (int group = 0; group < TILE_GROUPS; ++group) {
    if (!meets && group * GROUP >= columns) break;
    float4 numbers[GROUP / 16][2];
    int largest[2] = {0, 0};  // of row lane / 4, and of row lane / 4 + 8
#pragma unroll
    for (int i = 0; i < GROUP / 16 * 2; ++i) {
      const int strip = group * GROUP / 16 + i / 2, first = i % 2 * 2;
      const float4 x =
          two_numbers(totals, gemm, &epilogue, rows, strip, first, first_column + strip * 16 + lane % 4 * 4 + first);
      numbers[i / 2][i % 2] = x;
      if (strip * 16 >= columns) continue;
      const int4 magnitudes = as_int4(x) & 0x7fffffff;
      largest[0] = max(largest[0], max(magnitudes.s0, magnitudes.s1));
      largest[1] = max(largest[1], max(magnitudes.s2, magnitudes.s3));
    }
#pragma unroll
    for (int last = 0; last < 2; ++last) {
      largest[last] = max(largest[last], lane_across(largest[last], 1));
      largest[last] = max(largest[last], lane_across(largest[last], 2));
    }
    if (meets) add_other_columns(largest, share, met);
    const bool has_scales = lane % 4 == 0 && !(meets && share->warp_group == 1);
#pragma unroll
    for (int last = 0; last < 2; ++last) {
      const int row = last * 8 + lane / 4;
      const RowScale by = row_scale_of_bits(largest[last], rules);
      if (has_scales && rows->stored >> row & 1)
        gemm->q_scale[(rows->first + row) * args->q_scale_stride + first_column / GROUP + group] = by.scale;
#pragma unroll
      for (int i = 0; i < GROUP / 16; ++i) {
        const float4 low = numbers[i][0], high = numbers[i][1];
        const int byte = group * GROUP + i * 16 + lane % 4 * 4;
        *(__local uint*)(piece + row * LINE + (byte / 16 ^ row % 8) * 16 + byte % 16) =
            code_pair(last ? low.s2 : low.s0, last ? low.s3 : low.s1, by, rules) |
            (uint)code_pair(last ? high.s2 : high.s0, last ? high.s3 : high.s1, by, rules) << 16;
      }
    }
  }
  warp_barrier();
  store_code_rows(piece, rows, gemm->q + rows->first * args->q_stride + first_column, args->q_stride, columns);
  warp_barrier();
}
#endif

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void grouped_gemm_wgmma_blocks(
    GROUPED_GEMM_BUFFERS, const grouped_gemm_args given) {
  const grouped_gemm_args args = given;
  __local uchar stages[STAGES * STAGE_BYTES] __attribute__((aligned(1024)));
  __local uchar pieces[CONSUMERS / 32 * PIECE_BYTES] __attribute__((aligned(16)));  // one for each warp
  __local ulong barriers[2 * STAGES];
  __local StageScales scales[STAGES];
  __local int numbers[2];
#if QUANTIZES
  __local int met[2][GROUP_ROWS];
#endif
  const Gemm gemm = gemm_of(GROUPED_GEMM_BUFFER_NAMES, &args);
  const int item = get_local_id(0);
  const uint full = shared_address(barriers), empty = full + STAGES * 8;
  start_barriers(full, empty);
  if (item < COPY_ITEMS) {
    produce_tiles(&gemm, stages, full, empty, scales, numbers);
    return;
  }

  take_registers();
  asm volatile(".reg .f32 a<16>, b<16>, c<16>, d<16>;");
  const int warp = item / 32 - 4, warp_group = warp / 4;
  const WarpPlace place = {shared_address(stages), full, empty, warp_group * 2, warp % 4};
  __local uchar* const piece = pieces + warp * PIECE_BYTES;
  const int steps = steps_of(args.k).end;
  if (warp_group == 1) give_turn(warp_group);
  Ring ring = {0, 0};
  for (;;) {
    enter_stage(&place, &ring);
    const __local StageScales* const of_first = scales + ring.stage;
    const Tile tile = of_first->tile;
    if (tile.rows.count == 0) break;
    const Share share = share_of(&tile, &place);
    const int first_row = share.first_row + share.strip * 16;
    const OutRows rows = {
        tile.rows.first + first_row, {1, 1}, of_first->stored[first_row / 32] >> first_row % 32 & 0xffff};
    Totals totals;
#pragma unroll
    for (int i = 0; i < TILE_PAIRS * PAIR_TILES * 4; ++i)
      totals.of[i / (PAIR_TILES * 4)][i / 4 % PAIR_TILES][i % 4] = 0;
    multiply_blocks(&totals, &ring, steps, &place, &share, scales);
    if (rows.stored == 0) continue;
#if QUANTIZES
    store_codes(&totals, &gemm, &tile, &rows, &share, piece, met);
#else
    store_numbers(&totals, &gemm, &tile, &rows, &share, piece);
#endif
  }
  leave_stage(&place, &ring);
}
