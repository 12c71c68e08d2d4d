// Grouped GEMM for a CPU. A work-group is one work-item. It owns the 64 columns of one panel for up to TILE_ROWS rows
// of one expert, and computes 6 rows at a time. -DREGISTER_PARTS=4: all 64 columns at once, in 24 accumulators of 16
// lanes, which fill the registers of AVX-512. -DREGISTER_PARTS=1: 16 columns at once, whose sums fill those of AVX2.
//
// K is cut into blocks, so that a block of the panel stays in a near cache for all rows and parts. If there are at most
// 6 rows, they stream the panel once. Weights that are codes or have scales for groups of K are dequantized: for at
// most 6 rows in registers, else a block at a time in local memory, once for all rows. Both give the same numbers. Rows
// that are codes, have scales for groups, or are f16 or bf16 are converted to f32 a block at a time. Every sum runs
// over k in ascending order, whatever the blocks.
#include "kernels_cl/gemm/cpu/register_tile.clh"

#define DECODED_W (W_GROUPED || OF(CODE_BITS, W_DTYPE))
#define DECODED_A (A_GROUP || OF(CODE_BITS, A_DTYPE) || OF(HAS_16_BITS, A_DTYPE))
enum { DECODED_K = 64 };

// stream_k: how many k few rows stream at a time. resumed: the initial value of a run's sums. kept: the total after it.
#if IS_I8
// Products of i8 less a zero point are below 2^15, so f32 sums of at most 512 of them are exact; int32 holds the sum of
// the blocks.
typedef int16 Total;
inline int stream_k(int k) { return K_BLOCK; }
inline float16 resumed(Total total) { return 0.0f; }
inline Total kept(Total total, float16 sum) { return total + convert_int16(sum); }
#else
typedef float16 Total;
inline int stream_k(int k) { return REGISTER_PARTS == 4 ? k : DECODED_K; }
inline float16 resumed(Total total) { return total; }
inline Total kept(Total total, float16 sum) { return sum; }
#endif

#include "kernels_cl/gemm/cpu/store_rows.clh"

#if DECODED_W
// Dequantizes k in [k_begin, k_end) of the panel. @param block  Shape: [k_end - k_begin, PANEL]
inline void decode_weights(const __global STORAGE(W_DTYPE)* panel, const Groups* of, int k_begin, int k_end,
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
          weights16(panel, i, part * 16, zero[part], scale[part]);
  }
}
#endif

#if DECODED_A
typedef const __local float* Row;
inline float element(Row row, int i) { return row[i]; }
// Converts elements [k_begin, k_end) of a row of `a` to f32; up to 15 past the last are 0.
inline void decode_row(const __global STORAGE(A_DTYPE)* row, const __global STORAGE(A_SCALE_DTYPE)* scale, int k_begin,
                       int k_end, __local float* block) {
  for (int i = k_begin; i < k_end; i += 16) {
    float16 x = OF(load_upto16, A_DTYPE)(row, i, k_end - i) - (float)A_ZERO_POINT;
#if A_GROUP
    x *= OF(load, A_SCALE_DTYPE)(scale, i / A_GROUP);
#endif
    *(__local float16*)(block + i - k_begin) = x;
  }
}
#else
typedef const __global STORAGE(A_DTYPE)* Row;
inline float element(Row row, int i) { return OF(load, A_DTYPE)(row, i) - (float)A_ZERO_POINT; }
#endif

// A run of k in a block, all in one group, and the parts of columns from `part` on. `begin` and `end` count from the
// block's first k.
typedef struct {
  const __global STORAGE(W_DTYPE)* streamed;  // the panel's block
  const __local float* decoded;               // the same as f32, or null
  const Groups* groups;
  int group, begin, end, part;
  const __global char* fetched;  // prefetched meanwhile, line_step bytes per k
  int line_step;
} Run;
typedef struct {
  float16 zero[REGISTER_PARTS], scale[REGISTER_PARTS];
} PartGroups;
INLINE PartGroups load_part_groups(const Run* run) {
  PartGroups of;
#pragma unroll
  for (int p = 0; p < REGISTER_PARTS; ++p) {
    of.zero[p] = zeros16(run->groups, run->group, (run->part + p) * 16);
    of.scale[p] = scales16(run->groups, run->group, (run->part + p) * 16);
  }
  return of;
}
// The weights of part `p` at k = i, read from run->decoded if `decoded`.
INLINE float16 part_weights(const Run* run, bool decoded, const PartGroups* groups, int i, int p) {
  const int column = (run->part + p) * 16;
  if (decoded) return *(const __local float16*)(run->decoded + i * PANEL + column);
  return weights16(run->streamed, i, column, groups->zero[p], groups->scale[p]);
}
// Adds the products of the run to the totals of its rows and parts.
INLINE void multiply_run(const Run* run, const Row a[REGISTER_ROWS], int rows, bool decoded, __local Total* totals) {
  float16 sums[REGISTER_ROWS][REGISTER_PARTS];
#pragma unroll
  for (int r = 0; r < REGISTER_ROWS; ++r)
#pragma unroll
    for (int p = 0; p < REGISTER_PARTS; ++p)
      if (r < rows) sums[r][p] = resumed(totals[r * PARTS + p]);
  PartGroups groups;
  if (!decoded) groups = load_part_groups(run);
  for (int i = run->begin; i < run->end; ++i) {
    float16 w[REGISTER_PARTS];
#pragma unroll
    for (int p = 0; p < REGISTER_PARTS; ++p) w[p] = part_weights(run, decoded, &groups, i, p);
    if (!decoded) __builtin_prefetch(run->fetched + i * run->line_step, 0, 2);
#pragma unroll
    for (int r = 0; r < REGISTER_ROWS; ++r) {
      if (r >= rows) break;
      const float16 x = (float16)(element(a[r], i));
#pragma unroll
      for (int p = 0; p < REGISTER_PARTS; ++p) sums[r][p] = fma(x, w[p], sums[r][p]);
    }
  }
#pragma unroll
  for (int r = 0; r < REGISTER_ROWS; ++r)
#pragma unroll
    for (int p = 0; p < REGISTER_PARTS; ++p)
      if (r < rows) totals[r * PARTS + p] = kept(totals[r * PARTS + p], sums[r][p]);
}
// Not inlined: in some kernels clang would then not keep all these accumulators in registers.
__attribute__((noinline)) void multiply_whole(const Run* run, const Row a[REGISTER_ROWS], __local Total* totals) {
  multiply_run(run, a, REGISTER_ROWS, false, totals);
}
INLINE void multiply_streamed(const Run* run, const Row a[REGISTER_ROWS], int rows, __local Total* totals) {
  switch (rows) {
    case 1: multiply_run(run, a, 1, false, totals); break;
    case 2: multiply_run(run, a, 2, false, totals); break;
    case 3: multiply_run(run, a, 3, false, totals); break;
    case 4: multiply_run(run, a, 4, false, totals); break;
    case 5: multiply_run(run, a, 5, false, totals); break;
    default: multiply_whole(run, a, totals);
  }
}
// Rounds `rows` up, so that fewer loops are compiled. The tile has room for rows past the last, which are computed, but
// not stored.
INLINE void multiply_decoded(const Run* run, const Row a[REGISTER_ROWS], int rows, __local Total* totals) {
  if (rows > 3)
    multiply_run(run, a, REGISTER_ROWS, true, totals);
  else
    multiply_run(run, a, 3, true, totals);
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void grouped_gemm_tile(GROUPED_GEMM_BUFFERS,
                                                                               const grouped_gemm_args given) {
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
  const ExpertTile of_expert = enter_tile(&gemm, last_row_tile_first(), row_starts);
  const RowTile tile = of_expert.rows;
  if (tile.count == 0) return;
  const int own = get_group_id(0), n = args.n, columns = min(PANEL, n - own * PANEL);
  PanelColumns of_columns[PANELS_EACH];
  const int k = gemm.args.k;

  for (int side = 0; side < PANELS_EACH; ++side) {
    const Panel panel = panel_of_side(&gemm, &of_expert, own, side);
    __local Total* side_sums = tile_sums + side * TILE_ROWS * PARTS;
    load_columns(&of_expert.epilogue, panel.first, columns, &of_columns[side]);
    for (int i = 0; i < tile.count * PARTS; ++i) side_sums[i] = vload16(i % PARTS, of_columns[side].start);

    const bool streams = tile.count <= REGISTER_ROWS;
#if DECODED_A
    const int block = DECODED_K;
#elif DECODED_W
    const int block = streams ? stream_k(k) : DECODED_K;
#else
    const int block = streams ? stream_k(k) : K_BLOCK;
#endif
    for (int k_begin = 0; k_begin < k; k_begin += block) {
      const int k_end = min(k_begin + block, k);
#if DECODED_A
      for (int row = 0; row < tile.count; ++row)
        decode_row(gemm.a + row_starts[row], gemm.a_scale + tile_source(&gemm, &tile, row) * args.a_scale_stride,
                   k_begin, k_end, a_block + row * DECODED_K);
#endif
#if DECODED_W
      if (!streams) decode_weights(panel.weights, &panel.groups, k_begin, k_end, w_block);
#endif
      const __global STORAGE(W_DTYPE)* streamed = panel.weights + (ulong)k_begin * OF(panel_units, W_DTYPE);
      for (int row = 0; row < tile.count; row += REGISTER_ROWS) {
        const int count = min(REGISTER_ROWS, tile.count - row);
        // All register tiles but the first prefetch the next block, in equal shares and at most a cache line per k. If
        // there are few rows, their parts of columns share the prefetch instead.
        const int row_bytes = OF(panel_units, W_DTYPE) * (int)sizeof(STORAGE(W_DTYPE)),
                  others = max((tile.count - 1) / REGISTER_ROWS, 1),
                  line_step = row > 0                             ? min(64, (row_bytes + others - 1) / others)
                              : streams && REGISTER_PARTS < PARTS ? row_bytes / PARTS
                                                                  : 0;
        Run run = {.streamed = streamed, .groups = &panel.groups, .line_step = line_step};
        Row a[REGISTER_ROWS];
#pragma unroll
        for (int r = 0; r < REGISTER_ROWS; ++r) {
          const int at = row + min(r, count - 1);
#if DECODED_A
          a[r] = a_block + at * DECODED_K;
#else
          a[r] = gemm.a + row_starts[at] + k_begin;
#endif
        }
        for (run.part = 0; run.part < PARTS; run.part += REGISTER_PARTS) {
          const int share = row > 0 ? row / REGISTER_ROWS - 1 : run.part;
          run.fetched = (const __global char*)streamed + block * (row_bytes + share * line_step);
          __local Total* totals = side_sums + row * PARTS + run.part;
#if DECODED_W
          if (!streams) {
            run.decoded = w_block, run.begin = 0, run.end = k_end - k_begin;
            multiply_decoded(&run, a, count, totals);
            continue;
          }
#endif
          for (run.begin = 0; run.begin < k_end - k_begin; run.begin = run.end) {
            run.group = group_at(&panel.groups, k_begin + run.begin);
            run.end = min(group_end(run.group, k_begin + run.begin, k), k_end) - k_begin;
            multiply_streamed(&run, a, count, totals);
          }
        }
      }
    }
  }
  store_rows(&gemm, &tile, tile_sums, of_columns, own, columns);
}
