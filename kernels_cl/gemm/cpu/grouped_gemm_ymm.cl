// Grouped GEMM for CPUs with AVX2, for integers on AVX-512, and for Arm CPUs with products of bytes or of bf16.
// ymm_steps.clh defines the steps. A work-group is one work-item. It owns the 64 columns of one panel for up to
// TILE_ROWS rows of one expert. It computes 6 rows x 16 columns at a time, whose accumulators take 12 of the 16
// registers of AVX2 or 24 of the 32 of Arm; with AVX-512 6 x 32, in 12 registers. Fewer rows take more columns.
//
// K is cut into blocks of BLOCK_STEPS. Once per block, rows of `a` are converted to operands of `multiply`. At most 6
// rows stream the panel. If there are more, the first six store its steps in local memory for the others, which
// prefetch a later block meanwhile. Every sum runs over k in ascending order, in the same runs for any number of rows:
// a run is a group of K that has a scale, cut at the ends of blocks.
#include "kernels_cl/gemm/cpu/ymm_steps.clh"

enum { BLOCK_STEPS = BLOCK_BYTES_OF_PART / (int)sizeof(Step), BLOCK_K = BLOCK_STEPS * STEP_K };
enum { STEP_BYTES = STEP_K * OF(panel_units, W_DTYPE) * (int)sizeof(STORAGE(W_DTYPE)) };
// How many blocks ahead weights and their scales are prefetched. A memory access takes longer than a block of few bits.
enum { BLOCK_BYTES = BLOCK_STEPS * STEP_BYTES, BLOCKS_AHEAD = BLOCK_BYTES < 8192 ? 8192 / BLOCK_BYTES : 1 };
// A run ends where its group (of at least 16 k) ends, where its block ends, and before 16-bit sums (BYTE_SUMS)
// overflow.
#if W_GROUPED
typedef float16 Total;
enum { GROUP_STEPS = W_GROUP / STEP_K, RUNS_OF_BLOCK = BLOCK_K / 16 + 1 };
#else
typedef Sum Total;
enum { GROUP_STEPS = BLOCK_STEPS, RUNS_OF_BLOCK = BYTE_SUMS ? BLOCK_K / MOST_BYTES_K : 1 };
#endif
enum { MOST_STEPS = BYTE_SUMS ? MOST_BYTES_K / STEP_K : BLOCK_STEPS };
inline int run_end(int begin, int steps) {
  const int end = min((begin / GROUP_STEPS + 1) * GROUP_STEPS, (begin / BLOCK_STEPS + 1) * BLOCK_STEPS);
  return min(min(end, begin + MOST_STEPS), steps);
}
#include "kernels_cl/gemm/cpu/store_rows.clh"

// The scales and offsets of a panel's columns in a group.
typedef struct {
  float16 scale[PARTS];
#if W_ZERO
  Sum offset[PARTS];  // of each weight: its zero point plus W_OFFSET
#endif
} GroupOfColumns;
#define HAS_OFFSETS (W_ZERO || (INTEGERS && (AVX_VNNI || BYTE_SUMS)))

// The rows of `a` in a block, as `multiply` takes them. COPIES_A: converted into local memory.
#if INTEGERS && !DOTS_OF_FOUR && !BYTE_SUMS
#define COPIES_A 1
typedef short Copied;
typedef const __local short* Row;
inline uint element(Row row, int at) { return ((const __local uint*)row)[at]; }
inline int number(Row row, int i) { return row[i]; }
// In fours of k, the even k come first, then the odd ones, as in a step of words.
#if W_K_WORDS
inline short16 in_order_of_steps(short16 x) {
  return __builtin_shufflevector(x, x, 0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
}
inline int place_in_step(int i) { return i / 4 * 4 + i % 2 * 2 + i % 4 / 2; }
#else
inline short16 in_order_of_steps(short16 x) { return x; }
inline int place_in_step(int i) { return i; }
#endif
inline void copy_row(const __global char* row, const __global float* scale, int begin, int end, __local short* to) {
  int i = begin;
  for (; i + 16 <= end; i += 16)
    *(__local short16*)(to + i - begin) =
        in_order_of_steps(__builtin_convertvector(load_char16(row + i), short16) - (short)A_ZERO_POINT);
  for (; i < end; ++i) to[place_in_step(i - begin)] = row[i] - A_ZERO_POINT;
}
#elif INTEGERS
#define COPIES_A 0
typedef char Copied;
typedef const __global char* Row;
inline uint element(Row row, int at) { return ((const __global Element32*)row)[at].v; }
inline int number(Row row, int i) { return row[i]; }
#elif NEON_BF16 || (OF(IS_F32, A_DTYPE) && !A_GROUP)
#define COPIES_A 0
typedef STORAGE(A_DTYPE) Copied;
typedef const __global STORAGE(A_DTYPE)* Row;
inline float element(Row row, int at) { return OF(load, A_DTYPE)(row, at); }
inline float number(Row row, int i) { return OF(load, A_DTYPE)(row, i); }
#else
#define COPIES_A 1
typedef float Copied;
typedef const __local float* Row;
inline float element(Row row, int at) { return row[at]; }
inline float number(Row row, int i) { return row[i]; }
inline void copy_row(const __global STORAGE(A_DTYPE)* row, const __global STORAGE(A_SCALE_DTYPE)* scale, int begin,
                     int end, __local float* to) {
  for (int i = begin; i < end; i += 16) {
    float16 x = OF(load_upto16, A_DTYPE)(row, i, end - i) - (float)A_ZERO_POINT;
#if A_GROUP
    x *= OF(load, A_SCALE_DTYPE)(scale, i / A_GROUP);
#endif
    *(__local float16*)(to + i - begin) = x;
  }
}
#endif

// The weight operand of a block: a panel's steps in a block of K.
typedef struct {
  const __global STORAGE(W_DTYPE)* panel;  // from the block on
  __local Step* kept;                      // Shape: [PARTS, BLOCK_STEPS]
  const __local GroupOfColumns* groups;
  const __local Number*
      row_sums;    // of each run of a row, from the first row that is multiplied. Shape: [rows, RUNS_OF_BLOCK]
  int begin, end;  // steps, counted from the start of K
  const __global char* fetched;  // what to prefetch meanwhile
#if HAS_WIDE
  const Codec* codec;
#endif
} Block;
enum { STREAMED, KEPT, FROM_KEPT, WIDE };  // steps are made; made and stored; loaded; or made of all columns

INLINE Step next_step(const Block* block, int source, int step, int part) {
  if (source == FROM_KEPT) return block->kept[part * BLOCK_STEPS + step];
  const Step made = load_step(block->panel, step, part);
  if (source == KEPT) block->kept[part * BLOCK_STEPS + step] = made;
  return made;
}

// `group` and `run` count from the start of the block.
INLINE Total total_with(Total total, Sum sum, const Block* block, int run, int group, int row, int part) {
#if BYTE_SUMS
  sum = sum_of_bytes(sum);
#endif
#if W_GROUPED
  const __local GroupOfColumns* of = block->groups + group;
#if W_ZERO
  sum -= block->row_sums[row * RUNS_OF_BLOCK + run] * of->offset[part];
#elif HAS_OFFSETS
  sum -= block->row_sums[row * RUNS_OF_BLOCK + run] * W_OFFSET;
#endif
  return fma(convert_float16(sum), of->scale[part], total);
#elif HAS_OFFSETS
  return total + sum - block->row_sums[row * RUNS_OF_BLOCK + run] * W_OFFSET;
#elif HAS_WIDE || TWO_BY_TWO
  return total + sum;
#else
  return sum;
#endif
}
// The initial value of a run's sums: 0 if total_with adds the sums to the total, else the total.
INLINE Sum resumed(Total total) {
#if W_GROUPED || HAS_OFFSETS || HAS_WIDE || TWO_BY_TWO
  return 0;
#else
  return total;
#endif
}

// Adds the products of the block to the totals of `rows` rows, `parts` parts of columns at a time. `rows`, `parts` and
// `source` are constants once this is inlined.
INLINE void multiply_block(const Block* block, const Row a[REGISTER_ROWS], int rows, int parts, int source,
                           __local Total* all_totals) {
#pragma unroll 1
  for (int part = 0; part < PARTS; part += parts) {
    __local Total* const totals = all_totals + part;
    const __global char* fetched = block->fetched + part * BLOCK_STEPS * (STEP_BYTES / PARTS);
    for (int begin = block->begin, end, run = 0; begin < block->end; begin = end, ++run) {
      end = run_end(begin, block->end);
      const int group = begin / GROUP_STEPS - block->begin / GROUP_STEPS;
      Sum sums[REGISTER_ROWS][PARTS];
#pragma unroll
      for (int r = 0; r < REGISTER_ROWS; ++r)
#pragma unroll
        for (int p = 0; p < PARTS; ++p)
          if (r < rows && p < parts) sums[r][p] = resumed(totals[r * PARTS + p]);
      for (int step = begin - block->begin; step < end - block->begin; ++step) {
#pragma unroll
        for (int byte = 0; byte < STEP_BYTES / PARTS * parts; byte += 64)
          __builtin_prefetch(fetched + step * (STEP_BYTES / PARTS * parts) + byte);
        Step w[PARTS];
#if HAS_WIDE
        if (source == WIDE)
          load_wide(block->codec, block->panel + (ulong)step * OF(panel_units, W_DTYPE), w);
        else
#endif
#pragma unroll
          for (int p = 0; p < PARTS; ++p)
            if (p < parts) w[p] = next_step(block, source, step, part + p);
#pragma unroll
        for (int i = 0; i < OPERANDS; ++i)
#pragma unroll
          for (int r = 0; r < REGISTER_ROWS; ++r) {
            if (r >= rows) break;
#pragma unroll
            for (int p = 0; p < PARTS; ++p)
#if TWO_BY_TWO
              if (p < parts && r % 2 == i)
                sums[r][p] = multiply(sums[r][p], w[p], i, elements_of_two(a[r - i], a[r - i + 1], step));
#else
              if (p < parts) sums[r][p] = multiply(sums[r][p], w[p], i, element(a[r], step * OPERANDS + i));
#endif
          }
      }
#if HAS_WIDE
      if (source == WIDE) order(sums[0]);
#elif TWO_BY_TWO
#pragma unroll
      for (int r = 0; r < REGISTER_ROWS; r += 2)
#pragma unroll
        for (int p = 0; p < PARTS; ++p)
          if (r < rows && p < parts) separate(&sums[r][p], &sums[r + 1][p]);
#endif
#pragma unroll
      for (int r = 0; r < REGISTER_ROWS; ++r)
#pragma unroll
        for (int p = 0; p < PARTS; ++p)
          if (r < rows && p < parts)
            totals[r * PARTS + p] = total_with(totals[r * PARTS + p], sums[r][p], block, run, group, r, part + p);
    }
  }
}
enum { MANY_ROWS_PARTS = AVX512 ? 2 : 1 };
// Rounds `rows` up, so that few loops are compiled. Rows past the last are computed, but not stored.
INLINE void multiply_rows(const Block* block, const Row a[REGISTER_ROWS], int rows, int source, __local Total* totals) {
  if (rows > 4)
    multiply_block(block, a, REGISTER_ROWS, MANY_ROWS_PARTS, source, totals);
  else if (rows > 2)
    multiply_block(block, a, 4, MANY_ROWS_PARTS, source, totals);
  else
    multiply_block(block, a, 2, 2, source, totals);
}
INLINE void multiply_streamed(const Block* block, const Row a[REGISTER_ROWS], int rows, __local Total* totals) {
  if (rows > 1 || TWO_BY_TWO) {
    multiply_rows(block, a, rows, STREAMED, totals);
    return;
  }
#if HAS_WIDE
  if (is_wide(block->panel, block->end - block->begin)) {
    multiply_block(block, a, 1, 4, WIDE, totals);
    return;
  }
#endif
  multiply_block(block, a, 1, 4, STREAMED, totals);
}

#if W_GROUPED
inline void load_group(const Groups* of, int group, __local GroupOfColumns* columns) {
  fetch_scales(of, group + (BLOCKS_AHEAD * BLOCK_K + W_GROUP - 1) / W_GROUP);
  for (int part = 0; part < PARTS; ++part) {
    columns->scale[part] = scales16(of, group, part * 16);
#if W_ZERO
    columns->offset[part] = sum_of_floats(zeros16(of, group, part * 16)) + W_OFFSET;
#endif
  }
}
#endif
#if HAS_OFFSETS
// The sum of elements [begin, end) of a row.
inline Number sum_of(Row row, int begin, int end) {
  Number sum = 0;
  int i = begin;
#if NEON_BF16
  float4 sums = 0;
  for (; i + 8 <= end; i += 8) sums = matrix_of_bf16(sums, as_uint4(vload8(0, row + i)), 0x3f803f80u);
  sum = sums.x + sums.z;
#elif NEON_DOT
  int4 sums = 0;
  for (; i + 16 <= end; i += 16) sums = dot_of_bytes(sums, as_uint4(load_char16(row + i)), 0x01010101u);
  for (int lane = 0; lane < 4; ++lane) sum += ((const int*)&sums)[lane];
#elif INTEGERS && !COPIES_A
  const short16 ones = 1;
  int8 sums = 0;
  for (; i + 16 <= end; i += 16)
    sums += __builtin_ia32_pmaddwd256(__builtin_convertvector(load_char16(row + i), short16), ones);
  for (int lane = 0; lane < 8; ++lane) sum += ((const int*)&sums)[lane];
#endif
  for (; i < end; ++i) sum += number(row, i);
  return sum;
}
#endif
// Adds to a row's totals the products of the last k % STEP_K elements, which do not fill a step.
inline void add_last(__local Total* totals, const __global STORAGE(A_DTYPE)* row,
                     const __global STORAGE(W_DTYPE)* panel, const Groups* of, int k) {
#if INTEGERS || NEON_BF16
  for (int i = k / STEP_K * STEP_K; i < k; ++i) {
    const Number x = OF(load, A_DTYPE)(row, i) - A_ZERO_POINT;
    for (int part = 0; part < PARTS; ++part)
#if W_GROUPED
      totals[part] = fma((float16)((float)x),
                         weights16(panel, i, part * 16, zeros16(of, group_at(of, i), part * 16),
                                   scales16(of, group_at(of, i), part * 16)),
                         totals[part]);
#else
      totals[part] += x * sum_of_floats(numbers16(panel, i, part * 16));
#endif
  }
#endif
}

#if W_GROUPED && !INTEGERS
inline bool are_finite(const __local Total* totals) {
  bool finite = true;
  for (int part = 0; part < PARTS; ++part) finite = finite && !any((as_int16(totals[part]) & 0x7f800000) == 0x7f800000);
  return finite;
}
// Where numbers are far from 1, sums may overflow before their group's scale brings them back into range. Such a row is
// computed again, from weights that include their scales.
inline void add_anew(__local Total* totals, const float* start, const __global STORAGE(A_DTYPE)* row,
                     const __global STORAGE(A_SCALE_DTYPE)* scale, const __global STORAGE(W_DTYPE)* panel,
                     const Groups* of, int k) {
  for (int part = 0; part < PARTS; ++part) {
    float16 total = vload16(part, start);
    for (int i = 0; i < k; ++i) {
      const int group = group_at(of, i);
      total = fma((float16)(activation(row, scale, i)),
                  weights16(panel, i, part * 16, zeros16(of, group, part * 16), scales16(of, group, part * 16)), total);
    }
    totals[part] = total;
  }
}
#endif

#if DOTS_OF_FOUR || NEON_BF16
ASSEMBLY_FUNCTION
#else
INLINE
#endif
void multiply_tile(const Gemm* given, int own, int tile_number, __local Total* tile_sums, __local Step* kept,
                   __local GroupOfColumns* block_groups, __local Number* row_sums, __local Copied* a_block,
                   __local ulong* row_starts) {
  Gemm gemm = *given;
  const ExpertTile of_expert = enter_tile(&gemm, tile_number, row_starts);
  const RowTile tile = of_expert.rows;
  if (tile.count == 0) return;
  const int n = gemm.args.n, columns = min(PANEL, n - own * PANEL);
  PanelColumns of_columns[PANELS_EACH];
  const int k = gemm.args.k, steps = k / STEP_K;
#if HAS_WIDE
  const Codec codec = make_codec();
#endif

  for (int side = 0; side < PANELS_EACH; ++side) {
    const Panel panel = panel_of_side(&gemm, &of_expert, own, side);
    __local Total* side_sums = tile_sums + side * TILE_ROWS * PARTS;
    load_columns(&of_expert.epilogue, panel.first, columns, &of_columns[side]);
    for (int i = 0; i < tile.count * PARTS; ++i)
#if IS_I8 || !INTEGERS
      side_sums[i] = vload16(i % PARTS, of_columns[side].start);
#else
      side_sums[i] = 0;
#endif
    for (int first = 0; first < steps; first += BLOCK_STEPS) {
      Block block = {panel.weights + (ulong)first * (STEP_K * OF(panel_units, W_DTYPE)),
                     kept,
                     block_groups,
                     row_sums,
                     first,
                     min(first + BLOCK_STEPS, steps),
                     (const __global char*)panel.weights + (ulong)first * STEP_BYTES + BLOCKS_AHEAD * BLOCK_BYTES};
#if HAS_WIDE
      block.codec = &codec;
#endif
#if W_GROUPED
      for (int group = first / GROUP_STEPS, i = 0; group * GROUP_STEPS < block.end; ++group, ++i)
        load_group(&panel.groups, group, &block_groups[i]);
#endif
      for (int row = 0; row < tile.count; ++row) {
#if COPIES_A
        copy_row(gemm.a + row_starts[row], gemm.a_scale + tile_source(&gemm, &tile, row) * gemm.args.a_scale_stride,
                 first * STEP_K, block.end * STEP_K, a_block + row * BLOCK_K);
#endif
#if HAS_OFFSETS
#if COPIES_A
        Row elements = a_block + row * BLOCK_K;
#else
        Row elements = gemm.a + row_starts[row] + first * STEP_K;
#endif
        for (int begin = first, i = 0, end; begin < block.end; begin = end, ++i) {
          end = run_end(begin, steps);
          row_sums[row * RUNS_OF_BLOCK + i] = sum_of(elements, (begin - first) * STEP_K, (end - first) * STEP_K);
        }
#endif
      }
      for (int row = 0; row < tile.count; row += REGISTER_ROWS) {
        const int count = min(REGISTER_ROWS, tile.count - row);
        __local Total* totals = side_sums + row * PARTS;
        Row a[REGISTER_ROWS];
#pragma unroll
        for (int r = 0; r < REGISTER_ROWS; ++r) {
          const int at = row + min(r, count - 1);
#if COPIES_A
          a[r] = a_block + at * BLOCK_K;
#else
          a[r] = gemm.a + row_starts[at] + first * STEP_K;
#endif
        }
        block.row_sums = row_sums + row * RUNS_OF_BLOCK;
        if (tile.count <= REGISTER_ROWS)
          multiply_streamed(&block, a, count, totals);
        else if (row == 0)
          multiply_block(&block, a, REGISTER_ROWS, MANY_ROWS_PARTS, KEPT, totals);
        else
          multiply_rows(&block, a, count, FROM_KEPT, totals);
      }
    }
    for (int row = 0; row < tile.count; ++row)
      add_last(side_sums + row * PARTS, gemm.a + row_starts[row], panel.weights, &panel.groups, k);
#if W_GROUPED && !INTEGERS
    for (int row = 0; row < tile.count; ++row)
      if (!are_finite(side_sums + row * PARTS))
        add_anew(side_sums + row * PARTS, of_columns[side].start, gemm.a + row_starts[row],
                 gemm.a_scale + tile_source(&gemm, &tile, row) * gemm.args.a_scale_stride, panel.weights, &panel.groups,
                 k);
#endif
  }
  store_rows(&gemm, &tile, tile_sums, of_columns, own, columns);
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void grouped_gemm_ymm(GROUPED_GEMM_BUFFERS,
                                                                              const grouped_gemm_args given) {
  const grouped_gemm_args args = given;
  __local Total tile_sums[PANELS_EACH * TILE_ROWS * PARTS];
  __local Step kept[PARTS * BLOCK_STEPS];
  __local GroupOfColumns block_groups[RUNS_OF_BLOCK];
  __local Number row_sums[HAS_OFFSETS ? TILE_ROWS * RUNS_OF_BLOCK : 1];
  __local Copied a_block[COPIES_A ? TILE_ROWS * BLOCK_K : 1] __attribute__((aligned(64)));
  __local ulong row_starts[TILE_ROWS];
  const Gemm gemm = gemm_of(GROUPED_GEMM_BUFFER_NAMES, &args);
  multiply_tile(&gemm, get_group_id(0), last_row_tile_first(), tile_sums, kept, block_groups, row_sums, a_block,
                row_starts);
}
