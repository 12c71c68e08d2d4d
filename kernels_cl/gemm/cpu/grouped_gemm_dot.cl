// Grouped GEMM for a CPU with the dot products of AVX-512; dot_steps.clh defines their operands. Row tiles, panels and
// register tiles are those of grouped_gemm_tile. A work-item takes up to PANEL_RUN panels in turn, since the initial
// totals of its rows are the same for all panels.
//
// The first rows of a tile make the panel's steps in registers. If the tile has more rows, the first rows also store a
// block of steps in local memory, from which the other rows load them. Meanwhile the other rows prefetch the next
// block, a cache line per step: otherwise nothing would be multiplied while the processor waits for it.
// Every sum runs over k in ascending order, in the same runs for any number of rows. Rows of codes are converted to
// bf16 a block at a time. Their scales for groups of K cover whole runs, and multiply a run's sums.
#include "kernels_cl/gemm/cpu/dot_panel.clh"

// A group has at least 16 values of k.
enum { RUNS_OF_BLOCK = W_GROUPED ? BLOCK_STEPS * STEP_K / 16 + 1 : 1 };

#if CODE_ROWS
enum { ROWS_OF_A_BLOCK = 1 };
typedef const __local uint* Row;  // two bf16 numbers each
inline uint16 step_of_row(Row row, int step) { return row[step % BLOCK_STEPS]; }
inline Number elements_of_run(Row row, int begin, int end) { return 0; }
#if OF(CODE_BITS, A_DTYPE) == 8
// `numbers`: lookup tables for codes. `order`: permutes 64 codes so that their numbers come out in order of k.
typedef struct {
  ByteNumbers numbers;
  uint16 order;
} RowCodec;
inline RowCodec make_row_codec() {
  uchar16 order[4];
  for (int i = 0; i < 4; ++i) order[i] = convert_uchar16(INDEX_16 / 8 * 32 + i * 8 + INDEX_16 % 8);
  const RowCodec codec = {row_numbers(), ((const PackedUint16*)order)->v};
  return codec;
}
#else
typedef int RowCodec;
inline RowCodec make_row_codec() { return 0; }
#endif
inline void decode_row(const RowCodec* codec, const __global STORAGE(A_DTYPE)* row, int begin, int end,
                       __local uint* to) {
  int i = begin;
#if OF(CODE_BITS, A_DTYPE) == 8
  for (; i + 64 <= end; i += 64) {
    uint16 first, others;
    numbers_of_bytes(&codec->numbers, bytes_at(codec->order, ((const __global PackedUint16*)(row + i))->v), &first,
                     &others);
    __local uint16* both = (__local uint16*)(to + (i - begin) / 2);
    both[0] = first, both[1] = others;
  }
#endif
  for (; i < end; i += 16)
    ((__local ushort16*)to)[(i - begin) / 16] =
        convert_ushort16(as_uint16(OF(load_upto16, A_DTYPE)(row, i, end - i)) >> 16);
}
#else
enum { ROWS_OF_A_BLOCK = 0 };
typedef const __global STORAGE(A_DTYPE)* Row;
inline uint16 step_of_row(Row row, int step) { return (uint16)(((const __global PackedUint*)row)[step].v); }
#endif

// The local memory of a work-item.
typedef struct {
  Total sums[PANELS_EACH * TILE_ROWS * PARTS], first_totals[TILE_ROWS];
  Step kept[BLOCK_STEPS];
  Run runs[RUNS_OF_BLOCK];
  ulong row_starts[TILE_ROWS];
#if CODE_ROWS
  uint rows[TILE_ROWS * BLOCK_STEPS];
  float row_scales[TILE_ROWS * RUNS_OF_BLOCK];
#endif
} Tile;

// The weight operand of a block: a panel's steps in a block of K.
typedef struct {
  const __global STORAGE(W_DTYPE)* panel;
  const Codec* codec;
  __local Step* kept;  // steps of the block
  const __local Run* runs;
  const __local float* row_scales;  // of each run, from the first row multiplied. Shape: [rows, RUNS_OF_BLOCK]
  int begin, end;                   // steps
  const __global char* fetched;     // prefetched meanwhile, a cache line per step
} Block;
enum { STREAMED, KEPT, FROM_KEPT };  // steps are made; made and stored in `kept`; or loaded from it

enum { FETCHED_AHEAD = 8192 };
// The hardware prefetcher alone does not run far enough ahead to keep memory busy.
INLINE void fetch_ahead(const __global STORAGE(W_DTYPE)* panel, int step) {
#pragma unroll
  for (int line = 0; line < STEP_BYTES; line += 64)
    __builtin_prefetch((const __global char*)panel + (ulong)step * STEP_BYTES + FETCHED_AHEAD + line);
}
INLINE Step next_step(Block* block, int source, int i) {
  if (source == FROM_KEPT) {
    __builtin_prefetch(block->fetched);
    block->fetched += 64;
    return block->kept[i - block->begin];
  }
  const Step step = load_step(block->codec, block->panel, i);
  fetch_ahead(block->panel, i);
  if (source == KEPT) block->kept[i - block->begin] = step;
  return step;
}

// Adds the products of the steps [begin, end) to the totals of the rows.
INLINE void multiply_run(Block* block, const Row a[REGISTER_ROWS], int rows, int source, int begin, int end,
                         const __local Run* run, __local Total* totals) {
  Sum sums[REGISTER_ROWS][PARTS];
#pragma unroll
  for (int r = 0; r < REGISTER_ROWS; ++r)
#pragma unroll
    for (int part = 0; part < PARTS; ++part)
      if (r < rows) sums[r][part] = resumed(totals[r * PARTS + part]);
  for (int i = begin; i < end; ++i) {
    const Step w = next_step(block, source, i);
#pragma unroll
    for (int r = 0; r < REGISTER_ROWS; ++r) {
      if (r >= rows) break;
      const uint16 x = step_of_row(a[r], i);
#pragma unroll
      for (int part = 0; part < PARTS; ++part) sums[r][part] = dot_product(sums[r][part], w.part[part], x);
    }
  }
#pragma unroll
  for (int r = 0; r < REGISTER_ROWS; ++r) {
    if (r >= rows) break;
    const Number elements = elements_of_run(a[r], begin, end);
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      __local Total* const total = totals + r * PARTS + part;
#if A_GROUP
      sums[r][part] *= block->row_scales[r * RUNS_OF_BLOCK + (int)(run - block->runs)];
#endif
      *total = total_with(*total, sums[r][part], elements, run, part);
    }
  }
}
// Once this is inlined, `source` is a constant, and so is `rows` in every multiply_run.
INLINE void multiply_block(Block* block, const Row a[REGISTER_ROWS], int rows, int source, __local Total* totals) {
  const __local Run* run = block->runs;
  for (int begin = block->begin, end; begin < block->end; begin = end, ++run) {
    end = run_end(begin, block->end);
    switch (source == KEPT ? REGISTER_ROWS : rows) {
      case 1: multiply_run(block, a, 1, source, begin, end, run, totals); break;
      case 2: multiply_run(block, a, 2, source, begin, end, run, totals); break;
      case 3: multiply_run(block, a, 3, source, begin, end, run, totals); break;
      case 4: multiply_run(block, a, 4, source, begin, end, run, totals); break;
      case 5: multiply_run(block, a, 5, source, begin, end, run, totals); break;
      default: multiply_run(block, a, REGISTER_ROWS, source, begin, end, run, totals);
    }
  }
}

// How many rows of a tile, from `row` on, are multiplied together. The first REGISTER_ROWS rows are one part. The
// others are split into equal parts, since a part of one or two rows would wait for the loads of steps.
inline int rows_from(int row, int count) {
  const int left = count - row, parts = (left + REGISTER_ROWS - 1) / REGISTER_ROWS;
  return row == 0 ? min(REGISTER_ROWS, count) : (left + parts - 1) / parts;
}

// Not inlined: see ASSEMBLY_FUNCTION.
ASSEMBLY_FUNCTION void multiply_tile(const Gemm* given, int group, int groups_beside, int tile_number,
                                     __local Tile* of_tile) {
  Gemm gemm = *given;
  __local ulong* row_starts = of_tile->row_starts;
  const ExpertTile of_expert = enter_tile(&gemm, tile_number, row_starts);
  const RowTile tile = of_expert.rows;
  if (tile.count == 0) return;
  const int n = gemm.args.n, k = gemm.args.k, out_panels = panels_of(n) / PANELS_EACH;
  const int panels_each = (out_panels + groups_beside - 1) / groups_beside, first_own = group * panels_each,
            sides = max(0, min(panels_each, out_panels - first_own)) * PANELS_EACH;
  const Codec codec = make_codec();
#if CODE_ROWS
  const RowCodec row_codec = make_row_codec();
#endif
  PanelColumns of_columns[PANELS_EACH];
  for (int row = 0; row < tile.count; ++row) of_tile->first_totals[row] = first_total(gemm.a + row_starts[row], k);

  for (int side_number = 0; side_number < sides; ++side_number) {
    const int own = first_own + side_number / PANELS_EACH, side = side_number % PANELS_EACH,
              columns = min(PANEL, n - own * PANEL);
    const Panel panel = panel_of_side(&gemm, &of_expert, own, side);
    __local Total* side_sums = of_tile->sums + side * TILE_ROWS * PARTS;
    load_columns(&of_expert.epilogue, panel.first, columns, &of_columns[side]);
    for (int i = 0; i < tile.count * PARTS; ++i) side_sums[i] = of_tile->first_totals[i / PARTS];

    const bool streams = tile.count <= REGISTER_ROWS;
    const int steps = k / STEP_K, block_steps = streams && !W_GROUPED && !ROWS_OF_A_BLOCK ? max(steps, 1) : BLOCK_STEPS;
    for (int first = 0; first < steps; first += block_steps) {
      const int block_end = min(first + block_steps, steps);
#if W_GROUPED
      for (int begin = first, i = 0; begin < block_end; begin = run_end(begin, steps), ++i)
        load_run(&panel.groups, begin / RUN_STEPS, &of_tile->runs[i]);
#endif
#if CODE_ROWS
      for (int row = 0; row < tile.count; ++row) {
        decode_row(&row_codec, gemm.a + row_starts[row], first * STEP_K, block_end * STEP_K,
                   of_tile->rows + row * BLOCK_STEPS);
#if A_GROUP
        const __global STORAGE(A_SCALE_DTYPE)* scales =
            gemm.a_scale + tile_source(&gemm, &tile, row) * gemm.args.a_scale_stride;
        for (int begin = first, i = 0; begin < block_end; begin = run_end(begin, steps), ++i)
          of_tile->row_scales[row * RUNS_OF_BLOCK + i] = OF(load, A_SCALE_DTYPE)(scales, begin * STEP_K / A_GROUP);
#endif
      }
#endif
      Block block = {.panel = panel.weights,
                     .codec = &codec,
                     .kept = of_tile->kept,
                     .runs = of_tile->runs,
                     .begin = first,
                     .end = block_end,
                     .fetched = (const __global char*)panel.weights + (ulong)block_end * STEP_BYTES};
      for (int row = 0, count; row < tile.count; row += count) {
        count = rows_from(row, tile.count);
        __local Total* totals = side_sums + row * PARTS;
        Row a[REGISTER_ROWS];
#pragma unroll
        for (int r = 0; r < REGISTER_ROWS; ++r) {
          const int at = row + min(r, count - 1);
#if CODE_ROWS
          a[r] = of_tile->rows + at * BLOCK_STEPS;
#else
          a[r] = gemm.a + row_starts[at];
#endif
        }
#if A_GROUP
        block.row_scales = of_tile->row_scales + row * RUNS_OF_BLOCK;
#endif
        if (streams)
          multiply_block(&block, a, count, STREAMED, totals);
        else if (row == 0)
          multiply_block(&block, a, REGISTER_ROWS, KEPT, totals);
        else
          multiply_block(&block, a, count, FROM_KEPT, totals);
      }
    }
    for (int row = 0; row < tile.count; ++row)
      complete_row(side_sums + row * PARTS, gemm.a + row_starts[row], panel.weights, &panel.groups, &of_columns[side],
                   k);
    if (side + 1 == PANELS_EACH) store_rows(&gemm, &tile, of_tile->sums, of_columns, own, columns);
  }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void grouped_gemm_dot(GROUPED_GEMM_BUFFERS,
                                                                              const grouped_gemm_args given) {
  const grouped_gemm_args args = given;
  __local Tile tile;
  const Gemm gemm = gemm_of(GROUPED_GEMM_BUFFER_NAMES, &args);
  multiply_tile(&gemm, get_group_id(0), get_num_groups(0), last_row_tile_first(), &tile);
}
