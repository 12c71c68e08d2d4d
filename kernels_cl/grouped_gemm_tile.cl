// Grouped GEMM for a CPU. A work-group is one work-item: it owns the 64 columns of one panel for up to TILE_ROWS rows of
// one expert and computes them 6 rows at a time. REGISTER_PARTS = 4: all 64 columns at once, in 24 sums of 16 lanes that
// fill the registers of AVX-512; 1: 16 columns at once, in sums that fill those of AVX2.
// Many rows go through K in blocks, so that a block of the panel stays in the L2 cache for all of them; few rows stream
// the panel once. Every sum runs over k in ascending order, whatever the blocks.
#include "kernels_cl/lib/grouped_gemm.clh"

#define PARTS (PANEL / 16)

#if IS_I8
// Products of i8 less a zero point are below 2^15, so f32 sums of K_BLOCK <= 512 of them are exact; int32 holds the sum
// of the blocks.
typedef int16 Sum;
#define RESUME(sum) ((float16)(0.0f))
#define KEEP(sum, acc) (sum) += convert_int16(acc)
#define STREAM_K K_BLOCK
#define TO_FLOAT(sum) convert_float16(sum)
#else
typedef float16 Sum;
#define RESUME(sum) (sum)
#define KEEP(sum, acc) (sum) = (acc)
#define STREAM_K k
#define TO_FLOAT(sum) (sum)
#endif

// Parts of 16 lanes in a row of the register tile.
#if REGISTER_PARTS == 4
#define EACH_PART(DO, r) DO(r, 0) DO(r, 1) DO(r, 2) DO(r, 3)
#else
#define EACH_PART(DO, r) DO(r, 0)
#endif

#define BEGIN_PART(r, p) float16 acc##r##p = RESUME(sums[r * PARTS + p]);
#define LOAD_PART(r, p) const float16 w##p = LOAD16(W_DTYPE)(w, p * 16);
#define STEP_PART(r, p) acc##r##p = fma(x, w##p, acc##r##p);
#define END_PART(r, p) KEEP(sums[r * PARTS + p], acc##r##p);

#define BEGIN_ROW(r) EACH_PART(BEGIN_PART, r)
#define STEP_ROW(r)                                                            \
  {                                                                            \
    const float16 x = (float16)(LOAD(A_DTYPE)(a##r, i) - (float)A_ZERO_POINT); \
    EACH_PART(STEP_PART, r)                                                    \
  }
#define END_ROW(r) EACH_PART(END_PART, r)

// Adds k in [k_begin, k_end) to `sums` of the rows at a0, a1, ...
#define REGISTER_TILE(EACH_ROW)                                           \
  {                                                                       \
    EACH_ROW(BEGIN_ROW)                                                   \
    for (int i = k_begin; i < k_end; ++i) {                               \
      const __global STORAGE(W_DTYPE)* w = columns_at + (ulong)i * PANEL; \
      EACH_PART(LOAD_PART, 0)                                             \
      EACH_ROW(STEP_ROW)                                                  \
    }                                                                     \
    EACH_ROW(END_ROW)                                                     \
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
  __local Sum tile_sums[TILE_ROWS * PARTS];
  OFFSET_POINTERS;
  // Tiles from the last: the number launched is an upper bound, and the work-groups without one should come first, since
  // a CPU hands out work-groups in shrinking chunks.
  const RowTile tile = find_row_tile(get_num_groups(1) - 1 - get_group_id(1), TILE_ROWS, row_ends, rows, first_expert,
                                     experts, rows_per_expert);
  if (tile.count == 0) return;
  const __global STORAGE(W_DTYPE)* panel = PANEL_OF(tile.expert);
  ENTER_K_WINDOW(panel, tile.expert)

  const int first_column = get_group_id(0) * PANEL, columns = min(PANEL, n - first_column);
  const Epilogue epilogue = EPILOGUE_OF(tile.expert);
  float scale[PANEL], shift[PANEL];
  Element start[PANEL];
  for (int column = 0; column < PANEL; ++column) {
    const int from = first_column + min(column, columns - 1);
    scale[column] = column_scale(&epilogue, from), shift[column] = column_bias(&epilogue, from);
    start[column] = column_sum_bias(&epilogue, from);
  }
  for (int i = 0; i < tile.count * PARTS; ++i) tile_sums[i] = vload16(i % PARTS, start);

  const int block = tile.count > REGISTER_ROWS ? K_BLOCK : STREAM_K;
  for (int k_begin = 0; k_begin < k; k_begin += block) {
    const int k_end = min(k_begin + block, k);
    for (int row = 0; row < tile.count; row += REGISTER_ROWS) {
      const long first = tile.first + row;
      const int count = min(REGISTER_ROWS, tile.count - row);
      const __global STORAGE(A_DTYPE) *a0 = ROW_POINTER(0), *a1 = ROW_POINTER(1), *a2 = ROW_POINTER(2),
                                      *a3 = ROW_POINTER(3), *a4 = ROW_POINTER(4), *a5 = ROW_POINTER(5);
      for (int part = 0; part < PARTS; part += REGISTER_PARTS) {
        __local Sum* sums = tile_sums + row * PARTS + part;
        const __global STORAGE(W_DTYPE)* columns_at = panel + part * 16;
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
  }

  for (int row = 0; row < tile.count; ++row) {
    const long source = source_row(tile.first + row, a_index, index_divisor, a_rows);
    if (source < 0) continue;
    const float row_scale = a_scale ? a_scale[source] : 1.0f;
    const ulong to = (tile.first + row) * out_stride + first_column;
    const __local Sum* sums = tile_sums + row * PARTS;
#if OUT_IS_I32
    for (int column = 0; column < columns; ++column) out[to + column] = ((const __local int*)sums)[column];
#else
    for (int part = 0; part * 16 < columns; ++part) {
      const float16 x = FINISH(TO_FLOAT(sums[part]), vload16(part, scale), vload16(part, shift), row_scale);
      STORE_UPTO16(OUT_DTYPE)(TO_OUT(x), out, to + part * 16, columns - part * 16);
    }
#endif
  }
}
