// Grouped GEMM for a CPU with the dot products of AVX-512; dot_steps.clh says of what. Tiles of rows, panels and
// registers are those of grouped_gemm_tile.
//
// The first rows of a tile make steps of the panel, in registers. Where there are others they keep a block of steps for
// them in local memory, and these fetch the next block meanwhile, a line a step: nothing would be multiplied while the
// processor waits for it.
// Every sum runs over k in ascending order, in the same runs for any number of rows.
#include "kernels_cl/gemm/cpu/dot_panel.clh"

// A processor by itself asks for too little ahead to keep memory busy.
#define FETCH_STREAMED(step) FETCH_AHEAD(step, 4096)

#define X(row, step) (((const __global PackedUint*)(row))[step].v)

#if W_GROUPED
// Groups are at least 16 long.
enum { RUNS_OF_BLOCK = BLOCK_STEPS * STEP_K / 16 + 1 };
#define EACH_RUN \
  for (int begin = block, end = RUN_END(block), run = 0; begin < block_end; begin = end, end = RUN_END(begin), ++run)
#define BEGIN_PART(r, p) Sum acc##r##p = 0;
#define END_PART(r, p) \
  totals[r * PARTS + p] = fma(convert_float16(acc##r##p OFFSETS(p)), runs[run].scale[p], totals[r * PARTS + p]);
#if HAS_OFFSETS
#define BEGIN_END(r) const Number elements = row_sum(a##r, begin * STEP_K, end * STEP_K);
#define OFFSETS(p) - (Sum)(elements) * runs[run].offset[p]
#else
#define BEGIN_END(r)
#define OFFSETS(p)
#endif
#else
enum { RUNS_OF_BLOCK = 1 };
#define EACH_RUN for (int begin = block, end = block_end; begin < end; begin = end)
#define BEGIN_PART(r, p) Sum acc##r##p = totals[r * PARTS + p];
#define BEGIN_END(r)
#define END_PART(r, p) totals[r * PARTS + p] = acc##r##p;
#endif
#define EACH_PART(DO, r) DO(r, 0) DO(r, 1) DO(r, 2) DO(r, 3)
#define STEP_PART(r, p) acc##r##p = dot_product(acc##r##p, w.part[p], x);
#define BEGIN_ROW(r) EACH_PART(BEGIN_PART, r)
#define STEP_ROW(r)                       \
  {                                       \
    const uint16 x = (uint16)X(a##r, i);  \
    EACH_PART(STEP_PART, r)               \
  }
#define END_ROW(r)          \
  {                         \
    BEGIN_END(r)            \
    EACH_PART(END_PART, r)  \
  }
#define REGISTER_TILE(EACH_ROW, STEP, BESIDE) \
  EACH_RUN {                                  \
    EACH_ROW(BEGIN_ROW)                       \
    for (int i = begin; i < end; ++i) {       \
      const Step w = STEP;                    \
      BESIDE;                                 \
      EACH_ROW(STEP_ROW)                      \
    }                                         \
    EACH_ROW(END_ROW)                         \
  }
#define STREAMED_TILE(EACH_ROW) REGISTER_TILE(EACH_ROW, load_step(&codec, panel, i), FETCH_STREAMED(i))
#define KEPT_TILE(EACH_ROW) REGISTER_TILE(EACH_ROW, load_step(&codec, panel, i), FETCH_AHEAD(i, 4096); w_block[i - block] = w)
#define BLOCK_TILE(EACH_ROW) REGISTER_TILE(EACH_ROW, w_block[i - block], __builtin_prefetch(fetched); fetched += 64)
#define ROW_POINTER(r) (gemm.a + row_starts[row + min(r, count - 1)])
#define ROW_POINTERS                                                                                                \
  const __global STORAGE(A_DTYPE) *a0 = ROW_POINTER(0), *a1 = ROW_POINTER(1), *a2 = ROW_POINTER(2), *a3 = ROW_POINTER(3), \
                                  *a4 = ROW_POINTER(4), *a5 = ROW_POINTER(5)

// Not inlined: see ASSEMBLY_FUNCTION.
ASSEMBLY_FUNCTION void multiply_tile(const Gemm* given, int own, int tile_number, __local Total* tile_sums,
                                     __local Step* w_block, __local ulong* row_starts, __local Run* runs) {
  Gemm gemm = *given;
  const RowTile tile = find_row_tile(&gemm, tile_number, TILE_ROWS);
  if (tile.count == 0) return;
  const int n = gemm.args.n, columns = min(PANEL, n - own * PANEL);
  const Epilogue epilogue = expert_epilogue(&gemm, tile.expert);
  const Codec codec = make_codec();
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
    for (int i = 0; i < tile.count * PARTS; ++i) side_sums[i] = 0;

    const bool streams = tile.count <= REGISTER_ROWS;
    const int steps = k / STEP_K, block_steps = streams && !W_GROUPED ? max(steps, 1) : BLOCK_STEPS;
    for (int block = 0; block < steps; block += block_steps) {
      const int block_end = min(block + block_steps, steps);
      const __global char* fetched = (const __global char*)panel + (ulong)block_end * STEP_BYTES;
#if W_GROUPED
      for (int begin = block, i = 0; begin < block_end; begin = RUN_END(begin), ++i)
        load_run(&groups, begin / RUN_STEPS, &runs[i]);
#endif
      for (int row = 0; row < tile.count; row += REGISTER_ROWS) {
        const int count = min(REGISTER_ROWS, tile.count - row);
        __local Total* totals = side_sums + row * PARTS;
        ROW_POINTERS;
        if (streams) FOR_ROWS(count, STREAMED_TILE)
        else if (row == 0) KEPT_TILE(ROWS_6)
        else FOR_ROWS(count, BLOCK_TILE)
      }
    }
    for (int row = 0; row < tile.count; ++row)
      complete_row(side_sums + row * PARTS, gemm.a + row_starts[row], panel, &groups, &of_columns[side], k);
  }
  store_rows(&gemm, &tile, tile_sums, of_columns, own, columns);
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void grouped_gemm_dot(
    GROUPED_GEMM_BUFFERS, const grouped_gemm_args given) {
  const grouped_gemm_args args = given;
  __local Total tile_sums[PANELS_EACH * TILE_ROWS * PARTS];
  __local Step w_block[BLOCK_STEPS];
  __local ulong row_starts[TILE_ROWS];
  __local Run runs[RUNS_OF_BLOCK];
  const Gemm gemm = gemm_of(GROUPED_GEMM_BUFFER_NAMES, &args);
  multiply_tile(&gemm, get_group_id(0), last_row_tile_first(), tile_sums, w_block, row_starts, runs);
}
