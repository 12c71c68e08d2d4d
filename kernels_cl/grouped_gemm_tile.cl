// Grouped GEMM for a CPU. A work-group is one work-item: it owns the 64 columns of one panel for up to TILE_ROWS rows of
// one expert and computes them 6 rows at a time in 24 accumulators of 16 lanes, which fill the registers of AVX-512.
// Many rows go through K in blocks, so that a block of the panel stays in the L2 cache for all of them; few rows stream
// the panel once. Every sum runs over k in ascending order, whatever the blocks.
#include "kernels_cl/lib/grouped_gemm.clh"

#if IS_I8
// Products of i8 are at most 2^14, so f32 sums of K_BLOCK <= 1024 of them are exact; int32 holds the sum of the blocks.
typedef int16 Sum;
#define RESUME(sum) ((float16)(0.0f))
#define KEEP(sum, acc) (sum) += convert_int16(acc)
#define STREAM_K K_BLOCK
#else
typedef float16 Sum;
#define RESUME(sum) (sum)
#define KEEP(sum, acc) (sum) = (acc)
#define STREAM_K k
#endif

#define BEGIN_ROW(r)                                                                                 \
  float16 acc##r##0 = RESUME(sums[r * 4]), acc##r##1 = RESUME(sums[r * 4 + 1]),                      \
          acc##r##2 = RESUME(sums[r * 4 + 2]), acc##r##3 = RESUME(sums[r * 4 + 3]);
#define STEP_ROW(r)                                                                                  \
  {                                                                                                  \
    const float16 x = (float16)(LOAD(A_DTYPE)(a##r, i));                                             \
    acc##r##0 = fma(x, w0, acc##r##0), acc##r##1 = fma(x, w1, acc##r##1);                            \
    acc##r##2 = fma(x, w2, acc##r##2), acc##r##3 = fma(x, w3, acc##r##3);                            \
  }
#define END_ROW(r)                                                                                   \
  KEEP(sums[r * 4], acc##r##0), KEEP(sums[r * 4 + 1], acc##r##1), KEEP(sums[r * 4 + 2], acc##r##2),  \
      KEEP(sums[r * 4 + 3], acc##r##3);

// Adds k in [k_begin, k_end) to `sums` of the rows at a0, a1, ...
#define REGISTER_TILE(EACH_ROW)                                                                      \
  {                                                                                                  \
    EACH_ROW(BEGIN_ROW)                                                                              \
    for (int i = k_begin; i < k_end; ++i) {                                                          \
      const __global STORAGE(W_DTYPE)* w = panel + (ulong)i * PANEL;                                 \
      const float16 w0 = LOAD16(W_DTYPE)(w, 0), w1 = LOAD16(W_DTYPE)(w, 16);                         \
      const float16 w2 = LOAD16(W_DTYPE)(w, 32), w3 = LOAD16(W_DTYPE)(w, 48);                        \
      EACH_ROW(STEP_ROW)                                                                             \
    }                                                                                                \
    EACH_ROW(END_ROW)                                                                                \
  }
#define ROWS_1(DO) DO(0)
#define ROWS_2(DO) ROWS_1(DO) DO(1)
#define ROWS_3(DO) ROWS_2(DO) DO(2)
#define ROWS_4(DO) ROWS_3(DO) DO(3)
#define ROWS_5(DO) ROWS_4(DO) DO(4)
#define ROWS_6(DO) ROWS_5(DO) DO(5)
#define REGISTER_ROWS 6

// A row whose index is out of range computes on row 0 and is not stored.
#define ROW_POINTER(r) \
  (a + max(0L, source_row(first + min(r, count - 1), a_index, index_divisor, a_rows)) * a_stride)

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void grouped_gemm_tile(GROUPED_GEMM_PARAMETERS) {
  // Local only because private memory this large is slow or refused on some devices.
  __local Sum tile_sums[TILE_ROWS * 4];
  OFFSET_POINTERS;
  // Tiles from the last: the number launched is an upper bound, and the work-groups without one should come first, since
  // a CPU hands out work-groups in shrinking chunks.
  const RowTile tile = find_row_tile(get_num_groups(1) - 1 - get_group_id(1), TILE_ROWS, row_ends, rows, first_expert,
                                     experts, rows_per_expert);
  if (tile.count == 0) return;
  const ulong panels = get_num_groups(0);
  const __global STORAGE(W_DTYPE)* panel =
      weights + (tile.expert * panels + get_group_id(0)) * k * PANEL;

  for (int i = 0; i < tile.count * 4; ++i) tile_sums[i] = (Sum)(0);

  const int block = tile.count > REGISTER_ROWS ? K_BLOCK : STREAM_K;
  for (int k_begin = 0; k_begin < k; k_begin += block) {
    const int k_end = min(k_begin + block, k);
    for (int row = 0; row < tile.count; row += REGISTER_ROWS) {
      const long first = tile.first + row;
      const int count = min(REGISTER_ROWS, tile.count - row);
      const __global STORAGE(A_DTYPE) *a0 = ROW_POINTER(0), *a1 = ROW_POINTER(1), *a2 = ROW_POINTER(2),
                                      *a3 = ROW_POINTER(3), *a4 = ROW_POINTER(4), *a5 = ROW_POINTER(5);
      __local Sum* sums = tile_sums + row * 4;
      switch (count) {
        case 1: REGISTER_TILE(ROWS_1) break;
        case 2: REGISTER_TILE(ROWS_2) break;
        case 3: REGISTER_TILE(ROWS_3) break;
        case 4: REGISTER_TILE(ROWS_4) break;
        case 5: REGISTER_TILE(ROWS_5) break;
        default: REGISTER_TILE(ROWS_6)
      }
    }
  }

  const int first_column = get_group_id(0) * PANEL, columns = min(PANEL, n - first_column);
  if (weight_scale) weight_scale += tile.expert * weight_scale_stride + first_column;
  if (bias) bias += tile.expert * bias_stride + first_column;
  for (int row = 0; row < tile.count; ++row) {
    const long source = source_row(tile.first + row, a_index, index_divisor, a_rows);
    if (source < 0) continue;
    const __local Element* sum = (const __local Element*)(tile_sums + row * 4);
    const float row_scale = a_scale ? a_scale[source] : 1.0f;
    const ulong to = (tile.first + row) * out_stride + first_column;
    for (int column = 0; column < columns; ++column)
      STORE(OUT_DTYPE)(finish(sum[column], row_scale, weight_scale, bias, column), out, to + column);
  }
}
