// Grouped GEMM of packed codes on NVIDIA's tensor cores by mma.sync: the codes are the left operand, so a product has
// 16 columns of weights and 8 rows of `a`. STAGES - 1 stages travel to local memory ahead of the one that is multiplied.
// A warp has the same 32 of 128 columns for all rows. Where columns or rows of `a` have scales for groups of k, the
// sums of a group get them before they are added to those of the other groups, in ascending order.
#define TILE_PANELS 2
#define ITEMS 128
#define COPY_ITEMS ITEMS
#define OUT_STEP 1
#define OUT_ROWS 1
#include "kernels_cl/lib/code_operands.clh"

#define TILES_N (TILE_ROWS / 8)  // of 8 rows
#if OPERAND_BITS == 8
#define PRODUCT_K 32
#else
#define PRODUCT_K 16
#endif
// k that share all scales; the host takes this kernel only where a group divides K_STEP or is a multiple of it.
#if W_GROUPED && A_GROUP
#define GROUP_K (W_GROUP < A_GROUP ? W_GROUP : A_GROUP)
#elif W_GROUPED
#define GROUP_K W_GROUP
#else
#define GROUP_K A_GROUP
#endif
#define IS_GROUPED (W_GROUPED || A_GROUP)
#if IS_GROUPED
#define STEP_GROUPS (GROUP_K < K_STEP ? K_STEP / GROUP_K : 1)  // of a step
#endif

#define IS_INTEGER_i8 1
#define IS_INTEGER_f8_e4m3 0
#define IS_INTEGER_f8_e5m2 0
#define IS_INTEGER_f16 0
#define IS_INTEGER_bf16 0
#if JOIN(IS_INTEGER_, A_DTYPE)
typedef int Sum;
#else
typedef float Sum;
#endif

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

#define STORE2_f32(x, y, to) *(__global float2*)(to) = (float2)(x, y)
#define STORE2_f16(x, y, to) vstorea_half2_rte((float2)(x, y), 0, to)
#define STORE2_bf16(x, y, to) *(__global uint*)(to) = bf16_pair(x, y)
#define STORE2 JOIN(STORE2_, OUT_DTYPE)

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
  const Copies copies = copies_of(&tile, a, a_index, index_divisor, a_rows, a_stride, weights, n, k);
  // This lane's columns: 16 j + parity from here, for j and parity 0 and 1; its rows of 8 are 2 (lane % 4) and the next.
  const int column = tile.first_panel * PANEL + warp * 32 + lane / 4 * 2, row = lane % 4 * 2;

  Sum sums[2][TILES_N][4];  // [parity * 2 + which of its rows]
#if IS_GROUPED
  float totals[2][TILES_N][4];
  const int panels = (n + PANEL - 1) / PANEL, panel = column / PANEL;
  const ulong panel_at =
      ((ulong)tile.rows.expert * panels + min(panel, panels - 1)) * (ulong)groups * PANEL + column % PANEL;
#endif
#pragma unroll
  for (int i = 0; i < 2 * TILES_N * 4; ++i) {
    sums[i / (TILES_N * 4)][i / 4 % TILES_N][i % 4] = 0;
#if IS_GROUPED
    totals[i / (TILES_N * 4)][i / 4 % TILES_N][i % 4] = 0;
#endif
  }

  const int steps = (k + K_STEP - 1) / K_STEP;
  for (int step = 0; step < STAGES - 1; ++step) {
    if (step < steps) copy_stage(&copies, step, stages + step * STAGE_BYTES);
    commit_copies();
  }
  for (int step = 0; step < steps; ++step) {
#if IS_GROUPED
    // Read before they are wanted.
    float w_scale[STEP_GROUPS][4], row_scale[STEP_GROUPS][TILES_N][2];
    uint offset[STEP_GROUPS][4];
#pragma unroll
    for (int group = 0; group < STEP_GROUPS; ++group) {
      const int begin = min(step * K_STEP + group * GROUP_K, k - 1);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        w_scale[group][i] = 1, offset[group][i] = OFFSET_OF(0);
#if W_GROUPED
        const ulong at = panel_at + (ulong)(begin / W_GROUP) * PANEL + i / 2 * 16 + i % 2;
        w_scale[group][i] = LOAD(W_SCALE_DTYPE)(group_scale, at);
#if W_ZERO
        offset[group][i] = OFFSET_OF(group_zero[at]);
#endif
#endif
      }
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
    WAIT_FOR_COPIES(STAGES - 2);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (step + STAGES - 1 < steps)
      copy_stage(&copies, step + STAGES - 1, stages + (step + STAGES - 1) % STAGES * STAGE_BYTES);
    commit_copies();
    const uint stage = shared_address(stages) + step % STAGES * STAGE_BYTES;
#pragma unroll
    for (int part = 0; part < K_STEP / 32; ++part) {
#if IS_GROUPED
      const uint* const part_offset = offset[GROUP_K < K_STEP ? part * 32 / GROUP_K : 0];
#else
      const uint* const part_offset = offset[0];
#endif
      uint operands[2 * PRODUCTS][4];
      load_code_operands(operands, stage + A_BYTES, warp, part, part_offset);
#pragma unroll
      for (int product = 0; product < PRODUCTS; ++product) {
#pragma unroll
        for (int pair = 0; pair < TILES_N / 2; ++pair) {
          const int a_row = pair * 16 + lane / 16 * 8 + lane % 8, chunk = (part * PRODUCTS + product) * 2 + lane / 8 % 2;
          uint b[4];
          LOAD_MATRICES("", b, stage + a_row * LINE + (chunk ^ a_row % 8) * 16);
#pragma unroll
          for (int i = 0; i < 4; ++i)
            MMA(sums[i / 2][pair * 2 + i % 2], operands[i / 2 * PRODUCTS + product], b[i % 2 * 2], b[i % 2 * 2 + 1]);
        }
#if IS_GROUPED
        const int upto = part * 32 + (product + 1) * PRODUCT_K;
        if (GROUP_K < K_STEP ? upto % GROUP_K == 0
                             : upto == K_STEP && ((step + 1) % (GROUP_K / K_STEP) == 0 || step + 1 == steps)) {
          const int group = GROUP_K < K_STEP ? upto / GROUP_K - 1 : 0;
#pragma unroll
          for (int j = 0; j < 2; ++j)
#pragma unroll
            for (int t = 0; t < TILES_N; ++t)
#pragma unroll
              for (int i = 0; i < 4; ++i) {
                totals[j][t][i] +=
                    (float)sums[j][t][i] * (w_scale[group][j * 2 + i / 2] * row_scale[group][t][i % 2]);
                sums[j][t][i] = 0;
              }
        }
#endif
      }
    }
  }

  const Epilogue epilogue = EPILOGUE_OF(tile.rows.expert);
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const int first = column + j * 16, columns = n - first;
    float scale[2] = {0, 0}, bias_of[2] = {0, 0};
    int sum_bias_of[2] = {0, 0};
#pragma unroll
    for (int parity = 0; parity < 2; ++parity)
      if (parity < columns) {
        scale[parity] = column_scale(&epilogue, first + parity), bias_of[parity] = column_bias(&epilogue, first + parity);
        if (sum_bias) sum_bias_of[parity] = epilogue.sum_bias[first + parity];
      }
#pragma unroll
    for (int i = 0; i < 2 * TILES_N; ++i) {
      const int tile_row = i / 2 * 8 + row + i % 2, source = sources[tile_row];
      if (source < 0 || columns <= 0) continue;
      const float row_scale = ROW_SCALE(source);
      float x[2];
#pragma unroll
      for (int parity = 0; parity < 2; ++parity) {
#if IS_GROUPED
        const float sum = totals[j][i / 2][parity * 2 + i % 2] * (1.0f / (1 << CODE_FACTOR_BITS));
#elif JOIN(IS_INTEGER_, A_DTYPE)
        const float sum = (float)((sums[j][i / 2][parity * 2 + i % 2] >> CODE_FACTOR_BITS) + sum_bias_of[parity]);
#else
        const float sum = sums[j][i / 2][parity * 2 + i % 2];
#endif
        x[parity] = FINISH(sum, scale[parity], bias_of[parity], row_scale);
      }
      const ulong to = (tile.rows.first + tile_row) * out_stride + first;
      if (OUT_ALIGNED && columns >= 2) {
        STORE2(x[0], x[1], out + to);
      } else {
        STORE(OUT_DTYPE)(x[0], out, to);
        if (columns >= 2) STORE(OUT_DTYPE)(x[1], out, to + 1);
      }
    }
  }
}
