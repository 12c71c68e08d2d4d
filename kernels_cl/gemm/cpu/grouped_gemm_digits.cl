// Grouped GEMM of f16 or bf16 rows and 4-bit weights for a CPU with AVX2. It multiplies bytes: rows as digits
// (row_digits.clh), weights as integers, from words of i4 or f4 codes; f4 numbers are integers divided by 2.
// -DAVX_VNNI=1: uses the dot products of AVX-VNNI. Row tiles and panels are those of grouped_gemm_tile.
//
// K is cut into blocks of BLOCK_K. At most ROWS_AT_ONCE rows stream the panel. For more rows, the panel's words are
// converted to bytes once per block. Every sum runs over k in the same runs for any number of rows, and is exact within
// a run.
#include "kernels_cl/gemm/cpu/register_tile.clh"
#ifndef AVX_VNNI
#define AVX_VNNI 0
#endif
#include "kernels_cl/gemm/cpu/row_digits.clh"

typedef float16 Total;
#include "kernels_cl/gemm/cpu/store_rows.clh"

// A step: STEP_K values of k of 16 columns, a word per column. Its unsigned bytes are the weights times W_STEPS plus
// W_OFFSET.
enum { STEP_K = 8, OPERANDS = STEP_K / 4, STEP_BYTES = PANEL * WORD_BITS / 8 };
typedef struct {
  uint16 operand[OPERANDS];
} Step;
#if OF(IS_F4, W_DTYPE)
enum { W_OFFSET = 12, W_MOST = 12, W_STEPS = 2 };
INLINE Step step_of(uint16 words) {
  const uint16 numbers = in_each_quarter((char16)(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  const Step of = {{bytes_at(numbers, words & 0x0f0f0f0fu), bytes_at(numbers, words >> 4 & 0x0f0f0f0fu)}};
  return of;
}
#else
enum { W_OFFSET = 8, W_MOST = 7, W_STEPS = 1 };
INLINE Step step_of(uint16 words) {
  words ^= 0x88888888u;
  const Step of = {{words & 0x0f0f0f0fu, words >> 4 & 0x0f0f0f0fu}};
  return of;
}
#endif

enum { FETCHED_AHEAD = 8192 };
// The hardware prefetcher alone does not run far enough ahead to keep memory busy.
INLINE Step next_step(const __global uint16* words) {
  __builtin_prefetch((const __global char*)words + FETCHED_AHEAD);
  return step_of(*words);
}

enum { ROWS_AT_ONCE = 2, BLOCK_K = 128, BLOCK_STEPS = BLOCK_K / STEP_K, BLOCK_CHUNKS = BLOCK_K / CHUNK_K };
// How many steps a sum holds before it is widened: 16-bit sums could overflow; those of AVX-VNNI have 32 bits.
enum { MOST_STEPS = AVX_VNNI ? BLOCK_STEPS : 32767 / (2 * 128 * (W_OFFSET + W_MOST) * OPERANDS) };
#if W_GROUPED
enum { GROUP_STEPS = W_GROUP / STEP_K, MOST_RUNS = BLOCK_CHUNKS + 1 };
#else
enum { GROUP_STEPS = BLOCK_STEPS, MOST_RUNS = 1 };
#endif
inline int run_end(int begin, int steps) {
  return min(min((begin / GROUP_STEPS + 1) * GROUP_STEPS, (begin / BLOCK_STEPS + 1) * BLOCK_STEPS), steps);
}
// The scales and zero points of a panel's columns in a run.
typedef struct {
  float16 scale[PARTS];
#if W_ZERO
  float16 zero[PARTS];
#endif
} Run;

// The weight operand of a block: a panel's steps in a block of K.
typedef struct {
  const __global uint16* words;  // from the block on. Shape: [BLOCK_STEPS, PARTS]
  const __local Step* kept;      // the same, as steps
  const __local Run* runs;
  int begin, end;  // steps, counted from the start of K
} Block;
// A row of `a` in a block of K.
typedef struct {
  uint digits[BLOCK_K / 4 * DIGITS_4K] __attribute__((aligned(64)));
  int2 run_sums[MOST_RUNS];  // of its elements in each run: sums of d0 + 256 * d1, and of d2
  float unit;
  ushort rests[BLOCK_CHUNKS];
} RowBlock;

// Sums of a run's products: with the first two digits, and with the third.
typedef struct {
  int16 of[1 + HAS_THIRD_DIGIT];
} Sums;
INLINE void add_digits(Sums* sums, const int16 digits[ROW_DIGITS]) {
  sums->of[0] += sum_of_columns(digits[0], 0) + sum_of_columns(digits[1], 8);
#if HAS_THIRD_DIGIT
  sums->of[1] += sum_of_columns(digits[2], 0);
#endif
}
INLINE float16 total_with(float16 total, const Sums* sums, int2 run_sums, float unit, const __local Run* run,
                          int part) {
  float16 sum = convert_float16(sums->of[0] - run_sums.x * W_OFFSET);
#if HAS_THIRD_DIGIT
  sum = fma(convert_float16(sums->of[1] - run_sums.y * W_OFFSET), (float16)(65536.0f), sum);
#endif
#if W_ZERO
  sum = fma((float16)(fma((float)run_sums.y, 65536.0f, (float)run_sums.x) * -W_STEPS), run->zero[part], sum);
#endif
#if W_GROUPED
  return fma(sum * (unit / W_STEPS), run->scale[part], total);
#else
  return fma(sum, (float16)(unit / W_STEPS), total);
#endif
}
// One row by one part has too few independent sums to hide the latency of vpdpbusd.
enum { PARTS_OF_ROW = AVX_VNNI && !HAS_THIRD_DIGIT ? 2 : 1, MOST_SUMS = 2 };
// Adds the products of a block with the digits of `rows` rows to the rows' totals. `rows` and `kept` are constants once
// this is inlined.
INLINE void multiply_block(const Block* block, const __local RowBlock* of, int rows, bool kept, __local Total* totals) {
  const int parts = rows == 1 ? PARTS_OF_ROW : 1;
  for (int begin = block->begin, end, run = 0; begin < block->end; begin = end, ++run) {
    end = run_end(begin, block->end);
#pragma unroll 1
    for (int part = 0; part < PARTS; part += parts) {
      Sums sums[MOST_SUMS] = {{{0}}, {{0}}};
      for (int step = begin - block->begin; step < end - block->begin;) {
        const int until = min(step + MOST_STEPS, end - block->begin);
        int16 digits[MOST_SUMS][ROW_DIGITS] = {{0}, {0}};
        for (; step < until; ++step) {
          Step w[PARTS_OF_ROW];
#pragma unroll
          for (int p = 0; p < PARTS_OF_ROW; ++p) {
            if (p >= parts) break;
            const int at = step * PARTS + part + p;
            w[p] = kept ? block->kept[at] : next_step(block->words + at);
          }
#pragma unroll
          for (int o = 0; o < OPERANDS; ++o)
#pragma unroll
            for (int i = 0; i < MOST_SUMS; ++i) {
              if (i >= rows * parts) break;
              const __local uint* element = of[i / parts].digits + (step * OPERANDS + o) * DIGITS_4K;
#pragma unroll
              for (int d = 0; d < ROW_DIGITS; ++d)
                digits[i][d] = dot_product(digits[i][d], w[i % parts].operand[o], element[d]);
            }
        }
#pragma unroll
        for (int i = 0; i < MOST_SUMS; ++i)
          if (i < rows * parts) add_digits(&sums[i], digits[i]);
      }
#pragma unroll
      for (int i = 0; i < MOST_SUMS; ++i) {
        if (i >= rows * parts) break;
        const __local RowBlock* const row = of + i / parts;
        __local Total* const total = totals + i / parts * PARTS + part + i % parts;
        *total = total_with(*total, &sums[i], row->run_sums[run], row->unit, block->runs + run, part + i % parts);
      }
    }
  }
}
// Adds the products of a row's rests, the parts of elements that the digits leave out.
inline void multiply_rests(const Block* block, const __local RowBlock* of, const __global STORAGE(A_DTYPE)* a_row,
                           __local Total* totals) {
  for (int chunk = 0; chunk * CHUNK_K < (block->end - block->begin) * STEP_K; ++chunk)
    for (uint left = of->rests[chunk]; left != 0; left &= left - 1) {
      const int i = chunk * CHUNK_K + __builtin_ctz(left), step = i / STEP_K, operand = i % STEP_K / 4;
      const int first_group = block->begin / GROUP_STEPS, group = (block->begin + step) / GROUP_STEPS - first_group;
      const float x = OF(load, A_DTYPE)(a_row, block->begin * STEP_K + i);
      const float rest = rest_of((float16)(x), of->unit).s0 / W_STEPS;
#pragma unroll 1
      for (int part = 0; part < PARTS; ++part) {
        const uint16 bytes = step_of(block->words[step * PARTS + part]).operand[operand] >> (uint)(i % 4 * 8) & 255u;
        float16 w = convert_float16(as_int16(bytes) - W_OFFSET);
#if W_ZERO
        w -= block->runs[group].zero[part] * W_STEPS;
#endif
#if W_GROUPED
        w *= block->runs[group].scale[part];
#endif
        totals[part] = fma((float16)(rest), w, totals[part]);
      }
    }
}

#if W_GROUPED
inline void load_run(const Groups* of, int group, __local Run* run) {
  fetch_scales(of, group + (2 * BLOCK_K + W_GROUP - 1) / W_GROUP);
  for (int part = 0; part < PARTS; ++part) {
    run->scale[part] = scales16(of, group, part * 16);
#if W_ZERO
    run->zero[part] = zeros16(of, group, part * 16);
#endif
  }
}
#endif

inline void make_row_block(const __global STORAGE(A_DTYPE)* a_row, int first, int last, __local RowBlock* to) {
  int2 sums[BLOCK_CHUNKS];
  to->unit = copy_digits(a_row, first * STEP_K, last * STEP_K, to->digits, sums, to->rests);
  for (int begin = first, run = 0, end, chunk = 0; begin < last; begin = end, ++run) {
    end = run_end(begin, last);
    int2 sum = 0;
    for (; chunk * CHUNK_K < (end - first) * STEP_K; ++chunk) sum += sums[chunk];
    to->run_sums[run] = sum;
  }
}

inline Block block_of(const Panel* panel, int first, int steps, __local Step* kept, __local Run* runs) {
  const Block block = {(const __global uint16*)panel->weights + (ulong)first * PARTS, kept, runs, first,
                       min(first + BLOCK_STEPS, steps)};
#if W_GROUPED
  for (int begin = first, i = 0; begin < block.end; begin = run_end(begin, steps), ++i)
    load_run(&panel->groups, begin / GROUP_STEPS, runs + i);
#endif
  return block;
}

// The most panels of a work-item, counting both panels of a gated activation.
enum { MOST_SIDES = PANEL_RUN * PANELS_EACH };
// Not inlined: see ASSEMBLY_FUNCTION. @param tile_sums  Shape: [MOST_SIDES, TILE_ROWS, PARTS]
ASSEMBLY_FUNCTION void multiply_tile(const Gemm* given, int group, int groups_beside, int tile_number,
                                     __local Total* tile_sums, __local Step* kept, __local Run* runs,
                                     __local RowBlock* a_blocks, __local ulong* row_starts) {
  Gemm gemm = *given;
  const ExpertTile of_expert = enter_tile(&gemm, tile_number, row_starts);
  const RowTile tile = of_expert.rows;
  if (tile.count == 0) return;
  const int n = gemm.args.n, steps = gemm.args.k / STEP_K, out_panels = panels_of(n) / PANELS_EACH;
  const int panels_each = (out_panels + groups_beside - 1) / groups_beside, first_own = group * panels_each,
            sides = max(0, min(panels_each, out_panels - first_own)) * PANELS_EACH;
  Panel panels[MOST_SIDES];
  for (int side = 0; side < sides; ++side) {
    panels[side] = panel_of_side(&gemm, &of_expert, first_own + side / PANELS_EACH, side % PANELS_EACH);
    for (int i = 0; i < tile.count * PARTS; ++i) tile_sums[side * TILE_ROWS * PARTS + i] = 0.0f;
  }
  // Rounded up: the tile has room for rows past the last, which are computed, but not stored.
  const int rows = (tile.count + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE * ROWS_AT_ONCE;
  const int turn = TILE_ROWS / rows * BLOCK_STEPS;  // with few rows, several blocks per turn
  const bool streams = tile.count <= ROWS_AT_ONCE;

  for (int begin = 0; begin < steps; begin += turn) {
    const int end = min(begin + turn, steps);
    __local RowBlock* of = a_blocks;
    for (int first = begin; first < end; first += BLOCK_STEPS, of += rows)
      for (int row = 0; row < tile.count; ++row)
        make_row_block(gemm.a + row_starts[row], first, min(first + BLOCK_STEPS, end), of + row);
    for (int side = 0; side < sides; ++side) {
      __local Total* const side_sums = tile_sums + side * TILE_ROWS * PARTS;
      of = a_blocks;
      for (int first = begin; first < end; first += BLOCK_STEPS, of += rows) {
        const Block block = block_of(&panels[side], first, steps, kept, runs);
        if (!streams)
          for (int i = 0; i < (block.end - first) * PARTS; ++i) kept[i] = next_step(block.words + i);
        for (int row = 0; row < tile.count; row += ROWS_AT_ONCE) {
          if (!streams)
            multiply_block(&block, of + row, ROWS_AT_ONCE, true, side_sums + row * PARTS);
          else if (tile.count == 1)
            multiply_block(&block, of, 1, false, side_sums);
          else
            multiply_block(&block, of, ROWS_AT_ONCE, false, side_sums);
        }
        for (int row = 0; row < tile.count; ++row)
          multiply_rests(&block, of + row, gemm.a + row_starts[row], side_sums + row * PARTS);
      }
    }
  }

  for (int first_side = 0; first_side < sides; first_side += PANELS_EACH) {
    const int own = first_own + first_side / PANELS_EACH, columns = min(PANEL, n - own * PANEL);
    PanelColumns of_columns[PANELS_EACH];
    for (int side = 0; side < PANELS_EACH; ++side)
      load_columns(&of_expert.epilogue, panels[first_side + side].first, columns, &of_columns[side]);
    store_rows(&gemm, &tile, tile_sums + first_side * TILE_ROWS * PARTS, of_columns, own, columns);
  }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void grouped_gemm_digits(GROUPED_GEMM_BUFFERS,
                                                                                 const grouped_gemm_args given) {
  const grouped_gemm_args args = given;
  __local Total tile_sums[MOST_SIDES * TILE_ROWS * PARTS];
  __local Step kept[BLOCK_STEPS * PARTS];
  __local Run runs[MOST_RUNS];
  __local RowBlock a_blocks[TILE_ROWS];
  __local ulong row_starts[TILE_ROWS];
  const Gemm gemm = gemm_of(GROUPED_GEMM_BUFFER_NAMES, &args);
  multiply_tile(&gemm, get_group_id(0), get_num_groups(0), last_row_tile_first(), tile_sums, kept, runs, a_blocks,
                row_starts);
}
