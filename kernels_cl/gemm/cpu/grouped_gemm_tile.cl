// Grouped GEMM for a CPU. A work-group is one work-item: it owns the 64 columns of one panel for up to TILE_ROWS rows of
// one expert and computes them 6 rows at a time. REGISTER_PARTS = 4: all 64 columns at once, in 24 sums of 16 lanes that
// fill the registers of AVX-512; 1: 16 columns at once, in sums that fill those of AVX2.
//
// K goes in blocks, so that a block of the panel stays in a near cache for all rows and parts; at most 6 rows stream the
// panel once. Weights that are codes or have scales for groups of K become numbers in registers where there are at most 6
// rows, else a block at a time in local memory, once for all rows: the same numbers. Rows of such become numbers a block
// at a time. Every sum runs over k in ascending order, whatever the blocks.
#include "kernels_cl/gemm/cpu/register_tile.clh"

#define IS_CODE_f8_e4m3 1
#define IS_CODE_f8_e5m2 1
#define IS_CODE_f6_e2m3 1
#define IS_CODE_f6_e3m2 1
#define IS_CODE_f4_e2m1 1
#define IS_CODE_i4 1
#define DECODED_W (W_GROUPED || JOIN(IS_CODE_, W_DTYPE))
#define DECODED_A (A_GROUP || JOIN(IS_CODE_, A_DTYPE))
enum { DECODED_K = 64 };

#if IS_I8
// Products of i8 less a zero point are below 2^15, so f32 sums of at most 512 of them are exact; int32 holds the sum of
// the blocks.
typedef int16 Total;
#define STREAM_K K_BLOCK
#define RESUME(sum) ((float16)(0.0f))
#define KEEP(sum, acc) (sum) += convert_int16(acc)
#else
typedef float16 Total;
#define STREAM_K (REGISTER_PARTS == 4 ? k : DECODED_K)
#define RESUME(sum) (sum)
#define KEEP(sum, acc) (sum) = (acc)
#endif

#include "kernels_cl/gemm/cpu/store_rows.clh"

// Parts of 16 lanes in a row of the register tile.
#if REGISTER_PARTS == 4
#define EACH_PART(DO, r) DO(r, 0) DO(r, 1) DO(r, 2) DO(r, 3)
#else
#define EACH_PART(DO, r) DO(r, 0)
#endif

// Adds the k in [begin, end) of a block, counted from its first, to `sums` of the rows at a0, a1, ...
#define BEGIN_PART(r, p) float16 acc##r##p = RESUME(sums[r * PARTS + p]);
#define STEP_PART(r, p) acc##r##p = fma(x, w##p, acc##r##p);
#define END_PART(r, p) KEEP(sums[r * PARTS + p], acc##r##p);
#define BEGIN_ROW(r) EACH_PART(BEGIN_PART, r)
#define STEP_ROW(r)                        \
  {                                        \
    const float16 x = (float16)X(a##r, i); \
    EACH_PART(STEP_PART, r)                \
  }
#define END_ROW(r) EACH_PART(END_PART, r)
#define REGISTER_TILE(EACH_ROW, LOAD_PART, BESIDE) \
  {                                                \
    EACH_ROW(BEGIN_ROW)                            \
    for (int i = begin; i < end; ++i) {            \
      EACH_PART(LOAD_PART, 0)                      \
      BESIDE;                                      \
      EACH_ROW(STEP_ROW)                           \
    }                                              \
    EACH_ROW(END_ROW)                              \
  }
#define LOAD_STREAMED(r, p) \
  const float16 w##p = weights16(streamed + (ulong)i * PANEL_UNITS(W_DTYPE), (part + p) * 16, zero##p, scale##p);
#define LOAD_GROUP(r, p)                                                 \
  const float16 zero##p = zeros16(&groups, group, (part + p) * 16), \
                scale##p = scales16(&groups, group, (part + p) * 16);
#define STREAMED_TILE(EACH_ROW) REGISTER_TILE(EACH_ROW, LOAD_STREAMED, __builtin_prefetch(fetched + i * line_step, 0, 2))
#define LOAD_BLOCK(r, p) const float16 w##p = *(const __local float16*)(w_block + i * PANEL + (part + p) * 16);
#define BLOCK_TILE(EACH_ROW) REGISTER_TILE(EACH_ROW, LOAD_BLOCK, )

#if DECODED_W
// [k_end - k_begin, PANEL] numbers of the panel.
inline void decode_weights(const __global STORAGE(W_DTYPE) * panel, const Groups* of, int k_begin, int k_end,
                           __local float* block) {
  float16 zero[PARTS], scale[PARTS];
  int loaded = -1;
  for (int i = k_begin; i < k_end; ++i) {
    const int group = group_at(of, i);
    if (group != loaded) {
      loaded = group;
      for (int part = 0; part < PARTS; ++part)
        zero[part] = zeros16(of, group, part * 16), scale[part] = scales16(of, group, part * 16);
    }
    for (int part = 0; part < PARTS; ++part)
      *(__local float16*)(block + (i - k_begin) * PANEL + part * 16) =
          weights16(panel + (ulong)i * PANEL_UNITS(W_DTYPE), part * 16, zero[part], scale[part]);
  }
}
#endif

#if DECODED_A
typedef const __local float* Rows;
#define X(row, i) row[i]
#define ROW_POINTER(r) (a_block + (row + min(r, count - 1)) * DECODED_K)
// Numbers of a row of `a`; up to 15 past the last are 0.
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
typedef const __global STORAGE(A_DTYPE) * Rows;
#define X(row, i) (LOAD(A_DTYPE)(row, i) - (float)A_ZERO_POINT)
#define ROW_POINTER(r) (gemm.a + row_starts[row + min(r, count - 1)] + k_begin)
#endif

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void grouped_gemm_tile(
    GROUPED_GEMM_BUFFERS, const grouped_gemm_args given) {
  const grouped_gemm_args args = given;
  // Local only because private memory this large is slow or refused on some devices.
  __local Total tile_sums[PANELS_EACH * TILE_ROWS * PARTS];
#if DECODED_W
  __local float w_block[DECODED_K * PANEL] __attribute__((aligned(64)));
#endif
#if DECODED_A
  __local float a_block[TILE_ROWS * DECODED_K] __attribute__((aligned(64)));
#endif
  __local ulong row_starts[TILE_ROWS];
  Gemm gemm = gemm_of(GROUPED_GEMM_BUFFER_NAMES, &args);
  const RowTile tile = find_row_tile(&gemm, last_row_tile_first(), TILE_ROWS);
  if (tile.count == 0) return;
  const int own = get_group_id(0), n = args.n, columns = min(PANEL, n - own * PANEL);
  const Epilogue epilogue = expert_epilogue(&gemm, tile.expert);
  PanelColumns of_columns[PANELS_EACH];
  find_rows(&gemm, &tile, row_starts);
  const Weights expert_weights = enter_expert(&gemm, tile.expert);
  const int k = gemm.args.k;

  for (int side = 0; side < PANELS_EACH; ++side) {
    const int of_side = panel_at(n, own, side);
    const __global STORAGE(W_DTYPE)* panel = panel_of(&expert_weights, of_side);
    const Groups groups = groups_of_panel(&expert_weights, of_side);
    __local Total* side_sums = tile_sums + side * TILE_ROWS * PARTS;
    load_columns(&epilogue, of_side * PANEL, columns, &of_columns[side]);
    for (int i = 0; i < tile.count * PARTS; ++i) side_sums[i] = vload16(i % PARTS, of_columns[side].start);

    const bool streams = tile.count <= REGISTER_ROWS;
#if DECODED_A
    const int block = DECODED_K;
#elif DECODED_W
    const int block = streams ? STREAM_K : DECODED_K;
#else
    const int block = streams ? STREAM_K : K_BLOCK;
#endif
    for (int k_begin = 0; k_begin < k; k_begin += block) {
      const int k_end = min(k_begin + block, k);
#if DECODED_A
      for (int row = 0; row < tile.count; ++row)
        decode_row(gemm.a + row_starts[row], gemm.a_scale + tile_source(&gemm, &tile, row) * args.a_scale_stride, k_begin, k_end,
                   a_block + row * DECODED_K);
#endif
#if DECODED_W
      if (!streams) decode_weights(panel, &groups, k_begin, k_end, w_block);
#endif
      const __global STORAGE(W_DTYPE)* streamed = panel + (ulong)k_begin * PANEL_UNITS(W_DTYPE);
      for (int row = 0; row < tile.count; row += REGISTER_ROWS) {
        const int count = min(REGISTER_ROWS, tile.count - row);
        const Rows a0 = ROW_POINTER(0), a1 = ROW_POINTER(1), a2 = ROW_POINTER(2), a3 = ROW_POINTER(3),
                   a4 = ROW_POINTER(4), a5 = ROW_POINTER(5);
        // All rows but the first fetch the next block meanwhile, in equal parts, at most a line each k.
        const int block_bytes = K_BLOCK * PANEL_UNITS(W_DTYPE) * (int)sizeof(STORAGE(W_DTYPE)),
                  others = max((tile.count - 1) / REGISTER_ROWS, 1),
                  line_step = row > 0 ? min(64, (block_bytes / K_BLOCK + others - 1) / others) : 0,
                  first_line = max(row / REGISTER_ROWS - 1, 0) * K_BLOCK * line_step;
        const __global char* fetched = (const __global char*)streamed + block_bytes + first_line;
        for (int part = 0; part < PARTS; part += REGISTER_PARTS) {
          __local Total* sums = side_sums + row * PARTS + part;
#if DECODED_W
          if (!streams) {
            const int begin = 0, end = k_end - k_begin;
            FOR_ABOUT_ROWS(count, BLOCK_TILE)
            continue;
          }
#endif
          for (int begin = 0, end; begin < k_end - k_begin; begin = end) {
            const int group = group_at(&groups, k_begin + begin);
            end = min(group_end(group, k_begin + begin, k), k_end) - k_begin;
            EACH_PART(LOAD_GROUP, 0)
            FOR_ROWS(count, STREAMED_TILE)
          }
        }
      }
    }
  }
  store_rows(&gemm, &tile, tile_sums, of_columns, own, columns);
}
