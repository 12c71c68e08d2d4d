// Grouped GEMM for a CPU. A work-group is one work-item: it owns the 64 columns of one panel for up to TILE_ROWS rows of
// one expert and computes them 6 rows at a time. REGISTER_PARTS = 4: all 64 columns at once, in 24 sums of 16 lanes that
// fill the registers of AVX-512; 1: 16 columns at once, in sums that fill those of AVX2.
// Many rows go through K in blocks, so that a block of the panel stays in the L2 cache for all of them; few rows stream
// the panel once. Operands that are codes or have scales for groups of K become f32 numbers first, DECODED_K at a time
// in local memory: once for all rows. Every sum runs over k in ascending order, whatever the blocks.
#include "kernels_cl/lib/grouped_gemm.clh"

#define PARTS (PANEL / 16)

#define IS_CODE_f8_e4m3 1
#define IS_CODE_f8_e5m2 1
#define IS_CODE_f6_e2m3 1
#define IS_CODE_f6_e3m2 1
#define IS_CODE_f4_e2m1 1
#define IS_CODE_i4 1
#define DECODED (W_GROUPED || A_GROUP || JOIN(IS_CODE_, A_DTYPE) || JOIN(IS_CODE_, W_DTYPE))
#define DECODED_K 64

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

// What a register tile multiplies, and the k of it that belong to a block.
#if DECODED
typedef const __local float* Rows;
typedef const __local float* Columns;
#define X(row, i) row[i]
#define W16(w, p) (*(const __local float16*)(w + p * 16))
#define ROW_UNITS PANEL
#define FIRST_K 0
#define END_K (k_end - k_begin)
#else
typedef const __global STORAGE(A_DTYPE) * Rows;
typedef const __global STORAGE(W_DTYPE) * Columns;
#define X(row, i) (LOAD(A_DTYPE)(row, i) - (float)A_ZERO_POINT)
#define W16(w, p) PANEL16(W_DTYPE)(w, p * 16)
#define ROW_UNITS PANEL_UNITS(W_DTYPE)
#define FIRST_K k_begin
#define END_K k_end
#endif

#define BEGIN_PART(r, p) float16 acc##r##p = RESUME(sums[r * PARTS + p]);
#define LOAD_PART(r, p) const float16 w##p = W16(w, p);
#define STEP_PART(r, p) acc##r##p = fma(x, w##p, acc##r##p);
#define END_PART(r, p) KEEP(sums[r * PARTS + p], acc##r##p);

#define BEGIN_ROW(r) EACH_PART(BEGIN_PART, r)
#define STEP_ROW(r)                       \
  {                                       \
    const float16 x = (float16)X(a##r, i); \
    EACH_PART(STEP_PART, r)               \
  }
#define END_ROW(r) EACH_PART(END_PART, r)

// Adds the k of a block to `sums` of the rows at a0, a1, ...
#define REGISTER_TILE(EACH_ROW)                         \
  {                                                     \
    EACH_ROW(BEGIN_ROW)                                 \
    for (int i = FIRST_K; i < END_K; ++i) {             \
      const Columns w = columns_at + (ulong)i * ROW_UNITS; \
      EACH_PART(LOAD_PART, 0)                           \
      EACH_ROW(STEP_ROW)                                \
    }                                                   \
    EACH_ROW(END_ROW)                                   \
  }
#define ROWS_1(DO) DO(0)
#define ROWS_2(DO) ROWS_1(DO) DO(1)
#define ROWS_3(DO) ROWS_2(DO) DO(2)
#define ROWS_4(DO) ROWS_3(DO) DO(3)
#define ROWS_5(DO) ROWS_4(DO) DO(4)
#define ROWS_6(DO) ROWS_5(DO) DO(5)
#define REGISTER_ROWS 6

// A row whose index is out of range computes on row 0 and is not stored.
#define SOURCE_ROW(row) max(0L, source_row(tile.first + (row), a_index, index_divisor, a_rows))
#if DECODED
#define ROW_POINTER(r) (a_block + (row + min(r, count - 1)) * DECODED_K)

// [k_end - k_begin, PANEL] numbers of the panel.
inline void decode_weights(const __global STORAGE(W_DTYPE) * panel, const Groups* of, int k_begin, int k_end,
                           __local float* block) {
  float16 scale[PARTS], zero[PARTS];
  for (int part = 0; part < PARTS; ++part) scale[part] = 1.0f, zero[part] = 0.0f;
#if W_GROUPED
  int loaded = -1;
#endif
  for (int i = k_begin; i < k_end; ++i) {
#if W_GROUPED
    const int group = GROUP_AT(of, i);
    if (group != loaded) {
      loaded = group;
      for (int part = 0; part < PARTS; ++part) {
        const ulong at = (ulong)group * PANEL + part * 16;
        scale[part] = LOAD16(W_SCALE_DTYPE)(of->scale, at);
        if (of->zero) zero[part] = convert_float16(*(const __global short16*)(of->zero + at));
      }
    }
#endif
    for (int part = 0; part < PARTS; ++part) {
      float16 w = PANEL16(W_DTYPE)(panel + (ulong)i * PANEL_UNITS(W_DTYPE), part * 16);
#if W_GROUPED
      w = (w - zero[part]) * scale[part];
#endif
      *(__local float16*)(block + (i - k_begin) * PANEL + part * 16) = w;
    }
  }
}

// [DECODED_K] numbers of a row of `a`.
inline void decode_row(const __global STORAGE(A_DTYPE) * row, const __global STORAGE(A_SCALE_DTYPE) * scale, int k_begin,
                       int k_end, __local float* block) {
  for (int i = k_begin; i < k_end; i += 16) {
    float16 x = LOAD_UPTO16(A_DTYPE)(row, i, k_end - i) - (float)A_ZERO_POINT;
#if A_GROUP
    x *= LOAD(A_SCALE_DTYPE)(scale, i / A_GROUP);
#endif
    *(__local float16*)(block + i - k_begin) = x;
  }
}
#else
#define ROW_POINTER(r) (a + SOURCE_ROW(row + min(r, count - 1)) * a_stride)
#endif

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void grouped_gemm_tile(GROUPED_GEMM_PARAMETERS) {
  // Local only because private memory this large is slow or refused on some devices.
  __local Sum tile_sums[TILE_ROWS * PARTS];
#if DECODED
  __local float w_block[DECODED_K * PANEL] __attribute__((aligned(64)));
  __local float a_block[TILE_ROWS * DECODED_K] __attribute__((aligned(64)));
#endif
  OFFSET_POINTERS;
  // Tiles from the last: the number launched is an upper bound, and the work-groups without one should come first, since
  // a CPU hands out work-groups in shrinking chunks.
  const RowTile tile = find_row_tile(get_num_groups(1) - 1 - get_group_id(1), TILE_ROWS, row_ends, rows, first_expert,
                                     experts, rows_per_expert);
  if (tile.count == 0) return;
  const __global STORAGE(W_DTYPE)* panel = PANEL_OF(tile.expert);
#if DECODED
  const Groups groups_of = GROUPS_OF(tile.expert);
#endif
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

#if DECODED
  const int block = DECODED_K;
#else
  const int block = tile.count > REGISTER_ROWS ? K_BLOCK : STREAM_K;
#endif
  for (int k_begin = 0; k_begin < k; k_begin += block) {
    const int k_end = min(k_begin + block, k);
#if DECODED
    decode_weights(panel, &groups_of, k_begin, k_end, w_block);
    for (int row = 0; row < tile.count; ++row)
      decode_row(a + SOURCE_ROW(row) * a_stride, a_scale + SOURCE_ROW(row) * a_scale_stride, k_begin, k_end,
                 a_block + row * DECODED_K);
    const Columns columns_of = w_block;
#else
    const Columns columns_of = panel;
#endif
    for (int row = 0; row < tile.count; row += REGISTER_ROWS) {
      const int count = min(REGISTER_ROWS, tile.count - row);
      const Rows a0 = ROW_POINTER(0), a1 = ROW_POINTER(1), a2 = ROW_POINTER(2), a3 = ROW_POINTER(3),
                 a4 = ROW_POINTER(4), a5 = ROW_POINTER(5);
      for (int part = 0; part < PARTS; part += REGISTER_PARTS) {
        __local Sum* sums = tile_sums + row * PARTS + part;
        const Columns columns_at = columns_of + part * 16;
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
    const float row_scale = ROW_SCALE(source);
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
