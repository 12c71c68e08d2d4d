// Grouped GEMM of packed codes on NVIDIA's tensor cores by mma.sync: the codes are the left operand, so a product has
// 16 columns of weights and 8 rows of `a`. STAGES - 1 stages travel to local memory ahead of the one that is multiplied.
// A warp has the same 16 columns of both panels for all rows. Where columns or rows of `a` have scales for groups of k, the
// sums of a group get them before they are added to those of the other groups, in ascending order.
#define TILE_PANELS 2
#define ITEMS 128
#define COPY_ITEMS ITEMS
#include "kernels_cl/lib/code_operands.clh"

#define TILES_N (TILE_ROWS / 8)  // of 8 rows
// sum += a b for a tile of 16 columns, 8 rows and 32 k.
#define MMA_16x8x32(types, constraint, sum, a, b0, b1)                                                          \
  asm volatile("mma.sync.aligned.m16n8k32.row.col." types                                                       \
               " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                               \
               : "+" constraint((sum)[0]), "+" constraint((sum)[1]), "+" constraint((sum)[2]), "+" constraint((sum)[3]) \
               : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "r"(b0), "r"(b1))
#define MMA_i8(sum, a, b0, b1) MMA_16x8x32("s32.s8.s8.s32", "r", sum, a, b0, b1)
#define MMA_f8_e4m3(sum, a, b0, b1) MMA_16x8x32("f32.e4m3.e4m3.f32", "f", sum, a, b0, b1)
#define MMA_f8_e5m2(sum, a, b0, b1) MMA_16x8x32("f32.e5m2.e5m2.f32", "f", sum, a, b0, b1)
#define MMA JOIN(MMA_, A_DTYPE)

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void grouped_gemm_codes(GROUPED_GEMM_PARAMETERS) {
  __local uchar stages[STAGES * STAGE_BYTES] __attribute__((aligned(128)));
  __local int sources[TILE_ROWS];  // rows of `a`; -1: there is none
  OFFSET_POINTERS;
  const int number = get_group_id(1) * get_num_groups(0) + get_group_id(0);
  const Tile tile = find_tile(number, n, row_ends, rows, first_expert, experts, rows_per_expert);
  if (tile.rows.count == 0) return;
  const int item = get_local_id(0), lane = item % 32, warp = item / 32;
  if (item < TILE_ROWS)
    sources[item] =
        item < tile.rows.count ? (int)source_row(tile.rows.first + item, a_index, index_divisor, a_rows) : -1;
  barrier(CLK_LOCAL_MEM_FENCE);
  const Copies copies = copies_of(&tile, a, a_index, index_divisor, a_rows, a_stride, weights, n, k, GATED);
  const int column = tile.first_panel * PANEL + warp * 16 + LANE_COLUMN(lane), row = lane % 4 * 2;

  Sum sums[2][TILES_N][4];  // [tile][rows][parity * 2 + which of its rows]
#ifdef GROUP_K
  float totals[2][TILES_N][4];
  ulong group_at[2];
  FIND_GROUPS(group_at, tile.rows.expert, column)
#endif
#pragma unroll
  for (int i = 0; i < 2 * TILES_N * 4; ++i) {
    sums[i / (TILES_N * 4)][i / 4 % TILES_N][i % 4] = 0;
#ifdef GROUP_K
    totals[i / (TILES_N * 4)][i / 4 % TILES_N][i % 4] = 0;
#endif
  }

  const int steps = (k + K_STEP - 1) / K_STEP;
  copy_first_stages(&copies, steps, stages);
  for (int step = 0; step < steps; ++step) {
#ifdef GROUP_K
    // Read before they are wanted.
    float w_scale[STEP_GROUPS][4], row_scale[STEP_GROUPS][TILES_N][2];
    uint offset[STEP_GROUPS][4];
#pragma unroll
    for (int group = 0; group < STEP_GROUPS; ++group) {
      const int begin = min(step * K_STEP + group * GROUP_K, k - 1);
      LOAD_GROUP(w_scale[group], offset[group], group_at, begin)
#pragma unroll
      for (int i = 0; i < 2 * TILES_N; ++i) {
        row_scale[group][i / 2][i % 2] = 1;
#if A_GROUP
        const int source = sources[i / 2 * 8 + row + i % 2];
        row_scale[group][i / 2][i % 2] =
            source >= 0 ? LOAD(A_SCALE_DTYPE)(a_scale, source * a_scale_stride + begin / A_GROUP) : 0;
#endif
      }
    }
#else
    const uint offset[1][4] = {{OFFSET_OF(0), OFFSET_OF(0), OFFSET_OF(0), OFFSET_OF(0)}};
#endif
    const uint stage = next_stage(&copies, step, steps, stages);
#pragma unroll
    for (int part = 0; part < K_STEP / 32; ++part) {
#ifdef GROUP_K
      const uint* const part_offset = offset[STEP_GROUP(part * 32)];
#else
      const uint* const part_offset = offset[0];
#endif
      uint operands[2][PRODUCTS][4];
#pragma unroll
      for (int j = 0; j < 2; ++j)
        load_code_operands(operands[j], stage + A_BYTES, warp, j, part, part_offset + 2 * j);
#pragma unroll
      for (int product = 0; product < PRODUCTS; ++product) {
#pragma unroll
        for (int pair = 0; pair < TILES_N / 2; ++pair) {
          const int a_row = pair * 16 + lane / 16 * 8 + lane % 8, chunk = (part * PRODUCTS + product) * 2 + lane / 8 % 2;
          uint b[4];
          LOAD_MATRICES("", b, stage + a_row * LINE + (chunk ^ a_row % 8) * 16);
#pragma unroll
          for (int i = 0; i < 4; ++i)
            MMA(sums[i / 2][pair * 2 + i % 2], operands[i / 2][product], b[i % 2 * 2], b[i % 2 * 2 + 1]);
        }
#ifdef GROUP_K
        const int upto = part * 32 + (product + 1) * PRODUCT_K;
        if (GROUP_ENDS(upto, step, steps)) {
          const int group = STEP_GROUP(upto - 1);
#pragma unroll
          for (int j = 0; j < 2; ++j)
#pragma unroll
            for (int t = 0; t < TILES_N; ++t)
#pragma unroll
              for (int i = 0; i < 4; ++i) {
                totals[j][t][i] = fma((float)sums[j][t][i], w_scale[group][j * 2 + i / 2] * row_scale[group][t][i % 2],
                                      totals[j][t][i]);
                sums[j][t][i] = 0;
              }
        }
#endif
      }
    }
  }

  const Epilogue epilogue = EPILOGUE_OF(tile.rows.expert);
  const LaneColumns columns = lane_columns_of(&epilogue, column, n);
#ifdef GROUP_K
#define TOTALS totals
#else
#define TOTALS sums
#endif
  const Activation activation = {alpha, limit, up_bias};
#pragma unroll
  for (int t = 0; t < TILES_N; ++t) {
    const int first = t * 8 + row;
    const bool there[2] = {sources[first] >= 0, sources[first + 1] >= 0};
    const float row_scale[2] = {there[0] ? ROW_SCALE(sources[first]) : 0, there[1] ? ROW_SCALE(sources[first + 1]) : 0};
    STORE_TWO_ROWS(TOTALS[0][t], TOTALS[1][t], row_scale, there, out + (tile.rows.first + first) * out_stride)
  }
}
