// Grouped GEMM for a CPU with the tile registers of AMX. One instruction multiplies 16 rows with 16 columns for up to
// 16 steps of k, and adds to 16 x 16 sums. A step is a pair of bf16 (tdpbf16ps) or four i8 (tdpbssd).
//
// A work-item multiplies the rows of a tile with up to PANEL_RUN panels. It packs A_STEPS steps of its rows as AMX
// tiles into local memory, so that the rows need not be adjacent in `a`. It also packs a block of a panel there, as
// steps of dot_steps.clh. Totals stay in local memory between blocks. Rows past the last are computed, but not stored.
// bf16 sums run over k tile by tile, in the same order for any number of rows. i8 sums are exact.
#include "kernels_cl/gemm/cpu/dot_panel.clh"

// Steps of k in an AMX tile: as many as divide a group, so that tiles end where runs end.
#if !W_GROUPED || W_GROUP % (OF(IS_I8, A_DTYPE) ? 64 : 32) == 0
typedef uint16 TileRow;
#elif W_GROUP % (OF(IS_I8, A_DTYPE) ? 32 : 16) == 0
typedef uint8 TileRow;
#else
typedef uint4 TileRow;
#endif
enum { TILE_STEPS = sizeof(TileRow) / sizeof(uint) };
enum {
  SIDE = 16,
  A_TILES = A_STEPS / TILE_STEPS,
  SUMS_BYTES = PARTS * (int)sizeof(Sum)
};  // SIDE: rows or columns of a tile

typedef struct __attribute__((packed)) {
  TileRow v;
} PackedTileRow;
typedef struct {
  TileRow row[SIDE];
} RowsTile;

// The tile configuration that ldtilecfg reads.
// Source: Intel Architecture Instruction Set Extensions Programming Reference, chapter 3, palette 1.
typedef struct {
  uchar palette, start_row, reserved[14];
  ushort row_bytes[16];
  uchar rows[16];
} TileShapes;
// tmm0 to tmm3 are the accumulators, tmm4 and tmm5 hold rows, tmm6 and tmm7 hold steps.
inline void begin_tiles(void) {
  TileShapes shapes = {1, 0};
  for (int t = 0; t < 8; ++t) {
    shapes.row_bytes[t] = t == 4 || t == 5 ? TILE_STEPS * 4 : SIDE * 4;
    shapes.rows[t] = t < 6 ? SIDE : TILE_STEPS;
  }
  __asm__ volatile("ldtilecfg (%0)" ::"r"(&shapes) : "memory");
}
inline void end_tiles(void) { __asm__ volatile("tilerelease"); }
#define LOAD_TILE(t, from, row_bytes) \
  __asm__ volatile("tileloadd (%0, %1, 1), %%tmm" #t ::"r"((ulong)(from)), "r"((long)(row_bytes)) : "memory")
#define STORE_TILE(t, to, row_bytes) \
  __asm__ volatile("tilestored %%tmm" #t ", (%0, %1, 1)" ::"r"((ulong)(to)), "r"((long)(row_bytes)) : "memory")
#if OF(IS_BF16, A_DTYPE)
#define MULTIPLY_TILES(sums, rows, steps) \
  __asm__ volatile("tdpbf16ps %%tmm" #steps ", %%tmm" #rows ", %%tmm" #sums ::: "memory")
#else
#define MULTIPLY_TILES(sums, rows, steps) \
  __asm__ volatile("tdpbssd %%tmm" #steps ", %%tmm" #rows ", %%tmm" #sums ::: "memory")
#endif

// With groups a run's sums begin at 0, as its scales multiply them at its end. Otherwise they continue the totals.
#if W_GROUPED
#define BEGIN_SUMS(t, from) __asm__ volatile("tilezero %%tmm" #t ::)
#else
#define BEGIN_SUMS(t, from) LOAD_TILE(t, from, SUMS_BYTES)
#endif

// Prefetches the panel's next block while this block is packed and multiplied. It goes to the second-level cache, since
// the first-level cache holds this block.
typedef struct {
  const __global char* next;
  int lines;  // cache lines that one `fetch` prefetches
} Fetch;
inline void fetch(Fetch* of) {
  for (int line = 0; line < of->lines; ++line, of->next += 64) __builtin_prefetch(of->next, 0, 2);
}

// Accumulates the sums of 32 rows.
inline void multiply_two(const __local RowsTile* rows, const __local Step* steps, int tiles, __local Sum* sums,
                         Fetch* ahead) {
  __local Sum* const second = sums + SIDE * PARTS;
  for (int part = 0; part < PARTS; part += 2) {
    BEGIN_SUMS(0, sums + part);
    BEGIN_SUMS(1, sums + part + 1);
    BEGIN_SUMS(2, second + part);
    BEGIN_SUMS(3, second + part + 1);
    for (int i = 0; i < tiles; ++i) {
      const __local Step* const step = steps + i * TILE_STEPS;
      LOAD_TILE(6, step->part + part, sizeof(Step));
      LOAD_TILE(4, rows + i, sizeof(TileRow));
      MULTIPLY_TILES(0, 4, 6);
      LOAD_TILE(7, step->part + part + 1, sizeof(Step));
      MULTIPLY_TILES(1, 4, 7);
      LOAD_TILE(5, rows + A_TILES + i, sizeof(TileRow));
      MULTIPLY_TILES(2, 5, 6);
      MULTIPLY_TILES(3, 5, 7);
      fetch(ahead);
    }
    STORE_TILE(0, sums + part, SUMS_BYTES);
    STORE_TILE(1, sums + part + 1, SUMS_BYTES);
    STORE_TILE(2, second + part, SUMS_BYTES);
    STORE_TILE(3, second + part + 1, SUMS_BYTES);
  }
}
// Accumulates the sums of 16 rows.
inline void multiply_one(const __local RowsTile* rows, const __local Step* steps, int tiles, __local Sum* sums,
                         Fetch* ahead) {
  BEGIN_SUMS(0, sums);
  BEGIN_SUMS(1, sums + 1);
  BEGIN_SUMS(2, sums + 2);
  BEGIN_SUMS(3, sums + 3);
  for (int i = 0; i < tiles; ++i) {
    const __local Step* const step = steps + i * TILE_STEPS;
    LOAD_TILE(4, rows + i, sizeof(TileRow));
    LOAD_TILE(6, step->part, sizeof(Step));
    MULTIPLY_TILES(0, 4, 6);
    LOAD_TILE(7, step->part + 1, sizeof(Step));
    MULTIPLY_TILES(1, 4, 7);
    LOAD_TILE(6, step->part + 2, sizeof(Step));
    MULTIPLY_TILES(2, 4, 6);
    LOAD_TILE(7, step->part + 3, sizeof(Step));
    MULTIPLY_TILES(3, 4, 7);
    fetch(ahead);
  }
  STORE_TILE(0, sums, SUMS_BYTES);
  STORE_TILE(1, sums + 1, SUMS_BYTES);
  STORE_TILE(2, sums + 2, SUMS_BYTES);
  STORE_TILE(3, sums + 3, SUMS_BYTES);
}

// Copies steps [begin, end) of a row to row `at` of consecutive AMX tiles. Steps past the last are zero.
inline void copy_row(const __global STORAGE(A_DTYPE)* row, int begin, int end, int at, __local RowsTile* tiles) {
  const __global PackedUint* from = (const __global PackedUint*)row + begin;
  const int steps = end - begin;
  int i = 0;
  for (; i + TILE_STEPS <= steps; i += TILE_STEPS, ++tiles)
    tiles->row[at] = ((const __global PackedTileRow*)(from + i))->v;
  if (i == steps) return;
  tiles->row[at] = 0;
  for (int step = 0; i < steps; ++i, ++step) ((__local uint*)&tiles->row[at])[step] = from[i].v;
}

// The sums of one of the work-item's panels. @param all_sums  Shape: [PANEL_RUN, PANELS_EACH, TILE_ROWS, PARTS]
inline __local Total* sums_of(__local Total* all_sums, int panel, int side) {
  return all_sums + (panel * PANELS_EACH + side) * TILE_ROWS * PARTS;
}

// Not inlined: see ASSEMBLY_FUNCTION.
ASSEMBLY_FUNCTION void multiply_panels(const Gemm* given, int group, int groups_beside, int tile_number,
                                       __local Total* all_sums, __local Step* w_block, __local RowsTile* a_tiles,
                                       __local ulong* row_starts, __local Sum* run_sums, __local Run* run) {
  Gemm gemm = *given;
  const ExpertTile of_expert = enter_tile(&gemm, tile_number, row_starts);
  const RowTile tile = of_expert.rows;
  if (tile.count == 0) return;
  const int n = gemm.args.n, out_panels = panels_of(n) / PANELS_EACH;
  const int panels_each = (out_panels + groups_beside - 1) / groups_beside;
  const int first_own = group * panels_each, end_own = min(first_own + panels_each, out_panels);
  const Codec codec = make_codec();
  const __global STORAGE(A_DTYPE)* const a = gemm.a;
  const int k = gemm.args.k;
  for (int own = first_own; own < end_own; ++own)
    for (int side = 0; side < PANELS_EACH; ++side)
      for (int i = 0; i < tile.count * PARTS; ++i) sums_of(all_sums, own - first_own, side)[i] = 0;

  begin_tiles();
  const int steps = k / STEP_K;
  const int passes = tile.count / (2 * SIDE) * 2 + (tile.count % (2 * SIDE) + SIDE - 1) / SIDE;  // over a block
  // Few rows leave little to multiply during the prefetch, so their blocks are short. The bounds of runs do not change
  // with the number of rows: with groups blocks keep their length.
  const int block_steps = W_GROUPED || passes > 1 ? BLOCK_STEPS : SIDE;
  for (int a_begin = 0; a_begin < steps; a_begin += A_STEPS) {
    const int a_end = min(a_begin + A_STEPS, steps);
    for (int row = 0; row < tile.count; ++row)
      copy_row(a + row_starts[row], a_begin, a_end, row % SIDE, a_tiles + row / SIDE * A_TILES);
    for (int own = first_own; own < end_own; ++own)
      for (int side = 0; side < PANELS_EACH; ++side) {
        const Panel panel = panel_of_side(&gemm, &of_expert, own, side);
        for (int block = a_begin; block < a_end; block += block_steps) {
          const int block_end = min(block + block_steps, a_end);
          Fetch ahead = {(const __global char*)panel.weights + (ulong)block_end * STEP_BYTES,
                         passes > 1 ? 0 : STEP_BYTES / 128};
          for (int i = block; i < block_end; ++i) {
            w_block[i - block] = load_step(&codec, panel.weights, i);
            fetch(&ahead);
          }
          ahead.lines = (TILE_STEPS * (STEP_BYTES / 64 - ahead.lines) + passes - 1) / passes;
          for (int i = block_end; i % TILE_STEPS != 0; ++i)
            for (int part = 0; part < PARTS; ++part) w_block[i - block].part[part] = 0;
          for (int begin = block, end; begin < block_end; begin = end) {
#if W_GROUPED
            end = run_end(begin, steps);
            load_run(&panel.groups, begin / RUN_STEPS, run);
#else
            end = block_end;
#endif
            const int tiles = (end - begin + TILE_STEPS - 1) / TILE_STEPS;
            for (int row = 0; row < tile.count; row += 2 * SIDE) {
              __local Total* totals = sums_of(all_sums, own - first_own, side) + row * PARTS;
#if W_GROUPED
              __local Sum* const sums = run_sums;
#else
              __local Sum* const sums = totals;
#endif
              const __local RowsTile* rows_of = a_tiles + row / SIDE * A_TILES + (begin - a_begin) / TILE_STEPS;
              if (tile.count - row > SIDE)
                multiply_two(rows_of, w_block + (begin - block), tiles, sums, &ahead);
              else
                multiply_one(rows_of, w_block + (begin - block), tiles, sums, &ahead);
#if W_GROUPED
              for (int i = 0; i < min(2 * SIDE, tile.count - row); ++i) {
                const Number elements = elements_of_run(a + row_starts[row + i], begin, end);
                for (int part = 0; part < PARTS; ++part) {
                  const int at = i * PARTS + part;
                  totals[at] = total_with(totals[at], sums[at], elements, run, part);
                }
              }
#endif
            }
          }
        }
      }
  }
  end_tiles();

  for (int own = first_own; own < end_own; ++own) {
    const int columns = min(PANEL, n - own * PANEL);
    PanelColumns of_columns[PANELS_EACH];
    for (int side = 0; side < PANELS_EACH; ++side) {
      const Panel panel = panel_of_side(&gemm, &of_expert, own, side);
      load_columns(&of_expert.epilogue, panel.first, columns, &of_columns[side]);
      for (int row = 0; row < tile.count; ++row)
        complete_row(sums_of(all_sums, own - first_own, side) + row * PARTS, a + row_starts[row], panel.weights,
                     &panel.groups, &of_columns[side], k);
    }
    store_rows(&gemm, &tile, sums_of(all_sums, own - first_own, 0), of_columns, own, columns);
  }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void grouped_gemm_amx(GROUPED_GEMM_BUFFERS,
                                                                              const grouped_gemm_args given) {
  const grouped_gemm_args args = given;
  __local Total all_sums[PANEL_RUN * PANELS_EACH * TILE_ROWS * PARTS];
  __local Step w_block[BLOCK_STEPS];
  __local RowsTile a_tiles[TILE_ROWS / SIDE * A_TILES];
  __local ulong row_starts[TILE_ROWS];
  __local Sum run_sums[W_GROUPED ? 2 * SIDE * PARTS : 1];
  __local Run run;
  const Gemm gemm = gemm_of(GROUPED_GEMM_BUFFER_NAMES, &args);
  multiply_panels(&gemm, get_group_id(0), get_num_groups(0), last_row_tile_first(), all_sums, w_block, a_tiles,
                  row_starts, run_sums, &run);
}
