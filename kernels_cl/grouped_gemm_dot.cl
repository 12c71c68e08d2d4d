// Grouped GEMM for a CPU with the dot products of AVX-512: bf16 x bf16 in pairs of k (vdpbf16ps), i8 x i8 and i8 x i4 in
// fours (vpdpbusd). Tiles of rows, panels and registers are those of grouped_gemm_tile.
//
// A register of weights has the STEP_K values of each of 16 columns side by side. A panel has them in rows, which
// interleave to four such registers: in registers where few rows stream the panel, once a block of k in local memory
// for many rows. Interleaving works within quarters of a register, so sums stand in an order of their own until they are
// stored. Every sum runs over k in ascending order, whatever the blocks.
#include "kernels_cl/lib/register_tile.clh"
#include "kernels_cl/lib/vector16.clh"

#define IS_BF16_bf16 1
#if JOIN(IS_BF16_, A_DTYPE)
typedef float16 Sum;
typedef float4 Sum4;
#define DOT "vdpbf16ps"
#define STEP_K 2
#else
// vpdpbusd takes one operand without sign: weights plus W_OFFSET, which the row's sum times W_OFFSET corrects. Sums wrap
// on the way, and are right in the end.
typedef int16 Sum;
typedef int4 Sum4;
#define DOT "vpdpbusd"
#define STEP_K 4
#define IS_I4_i4 1
#define W_IS_I4 JOIN(IS_I4_, W_DTYPE)
#if W_IS_I4
#define W_OFFSET 8
#else
#define W_OFFSET 128
#endif
#endif

// As instructions, since the driver compiles for a processor that may lack them.
inline Sum dot_product(Sum sum, uint16 weights, uint16 elements) {
  __asm__(DOT " %2, %1, %0" : "+v"(sum) : "v"(weights), "v"(elements));
  return sum;
}
#define INTERLEAVE(name, instruction)                                          \
  inline uint16 name(uint16 a, uint16 b) {                                     \
    uint16 both;                                                               \
    __asm__(instruction " %2, %1, %0" : "=v"(both) : "v"(a), "v"(b));          \
    return both;                                                               \
  }
INTERLEAVE(low_words, "vpunpcklwd")
INTERLEAVE(high_words, "vpunpckhwd")

#define STEP_BYTES (STEP_K * PANEL_UNITS(W_DTYPE) * (int)sizeof(STORAGE(W_DTYPE)))
// STEP_K values of k of a panel's columns.
typedef struct {
  uint16 part[PARTS];
} Step;

#if STEP_K == 2
inline Step load_step(const __global ushort* panel, int step) {
  const __global uint16* rows = (const __global uint16*)(panel + (ulong)step * (2 * PANEL));
  const uint16 left = rows[0], right = rows[1], next_left = rows[2], next_right = rows[3];
  const Step of = {{low_words(left, next_left), high_words(left, next_left), low_words(right, next_right),
                    high_words(right, next_right)}};
  return of;
}
// Sums of columns 16 * part and the next.
inline Sum ordered_part(const __local Sum* sums, int part) {
  const __local Sum4* quarters = (const __local Sum4*)sums + (part / 2 * 8 + part % 2 * 2);
  return (Sum)(quarters[0], quarters[4], quarters[1], quarters[5]);
}
#define TAIL(sum, x, w) fma((float16)(x), w, sum)
#else
INTERLEAVE(low_bytes, "vpunpcklbw")
INTERLEAVE(high_bytes, "vpunpckhbw")
// A row of the panel in order, without sign.
#if W_IS_I4
inline uint16 load_row(const __global uchar* row) {
  const ulong4 x = *(const __global ulong4*)row;
  const ulong8 halves = ((ulong8)(x.lo, x.lo, x.hi, x.hi) >> (ulong8)(0, 0, 4, 4, 0, 0, 4, 4)) & 0x0f0f0f0f0f0f0f0ful;
  return as_uint16(halves) ^ 0x08080808u;
}
#else
inline uint16 load_row(const __global char* row) { return *(const __global uint16*)row ^ 0x80808080u; }
#endif
inline Step load_step(const __global STORAGE(W_DTYPE) * panel, int step) {
  const __global STORAGE(W_DTYPE)* row = panel + (ulong)step * (4 * PANEL_UNITS(W_DTYPE));
  const uint16 x0 = load_row(row), x1 = load_row(row + PANEL_UNITS(W_DTYPE)),
               x2 = load_row(row + 2 * PANEL_UNITS(W_DTYPE)), x3 = load_row(row + 3 * PANEL_UNITS(W_DTYPE));
  const uint16 low = low_bytes(x0, x1), next_low = low_bytes(x2, x3), high = high_bytes(x0, x1),
               next_high = high_bytes(x2, x3);
  const Step of = {{low_words(low, next_low), high_words(low, next_low), low_words(high, next_high),
                    high_words(high, next_high)}};
  return of;
}
inline Sum ordered_part(const __local Sum* sums, int part) {
  const __local Sum4* quarters = (const __local Sum4*)sums + part;
  return (Sum)(quarters[0], quarters[4], quarters[8], quarters[12]);
}
#define TAIL(sum, x, w) ((sum) + (int)(x) * convert_int16(w))

typedef struct __attribute__((packed)) { uint16 v; } PackedUint16;
FOLD_OF(sum_int, int, SUM_)
inline int row_sum(const __global char* row, int count) {
  const __global PackedUint16* x = (const __global PackedUint16*)row;
  Sum sum = 0, next = 0, third = 0, fourth = 0;  // do not wait for each other
  int i = 0;
  for (; i + 256 <= count; i += 256, x += 4) {
    sum = dot_product(sum, 0x01010101u, x[0].v), next = dot_product(next, 0x01010101u, x[1].v);
    third = dot_product(third, 0x01010101u, x[2].v), fourth = dot_product(fourth, 0x01010101u, x[3].v);
  }
  for (; i + 64 <= count; i += 64, ++x) sum = dot_product(sum, 0x01010101u, x->v);
  sum += next + third + fourth;
  int rest = 0;
  for (; i < count; ++i) rest += row[i];
  return sum_int_of_16(sum) + rest;
}
#endif

// STEP_K elements of a row of `a`.
typedef struct __attribute__((packed)) { uint v; } PackedUint;
#define X(row, step) (((const __global PackedUint*)(row))[step].v)

#define EACH_PART(DO, r) DO(r, 0) DO(r, 1) DO(r, 2) DO(r, 3)
#define BEGIN_PART(r, p) Sum acc##r##p = sums[r * PARTS + p];
#define STEP_PART(r, p) acc##r##p = dot_product(acc##r##p, w.part[p], x);
#define END_PART(r, p) sums[r * PARTS + p] = acc##r##p;
#define BEGIN_ROW(r) EACH_PART(BEGIN_PART, r)
#define STEP_ROW(r)                       \
  {                                       \
    const uint16 x = (uint16)X(a##r, i);  \
    EACH_PART(STEP_PART, r)               \
  }
#define END_ROW(r) EACH_PART(END_PART, r)
#define REGISTER_TILE(EACH_ROW, STEP, BESIDE) \
  {                                           \
    EACH_ROW(BEGIN_ROW)                       \
    for (int i = begin; i < end; ++i) {       \
      const Step w = STEP;                    \
      BESIDE;                                 \
      EACH_ROW(STEP_ROW)                      \
    }                                         \
    EACH_ROW(END_ROW)                         \
  }
#define STREAMED_TILE(EACH_ROW) REGISTER_TILE(EACH_ROW, load_step(panel, i), )
#define KEPT_TILE(EACH_ROW) REGISTER_TILE(EACH_ROW, load_step(panel, i), w_block[i - begin] = w)
#define BLOCK_TILE(EACH_ROW) REGISTER_TILE(EACH_ROW, w_block[i - begin], __builtin_prefetch(fetched); fetched += 64)
#define ROW_POINTER(r) (a + row_starts[row + min(r, count - 1)])
#define ROW_POINTERS                                                                                                \
  const __global STORAGE(A_DTYPE) *a0 = ROW_POINTER(0), *a1 = ROW_POINTER(1), *a2 = ROW_POINTER(2), *a3 = ROW_POINTER(3), \
                                  *a4 = ROW_POINTER(4), *a5 = ROW_POINTER(5)

// Puts the sums of a row in the order of columns, and adds what the steps left out: the last k, and what sums start from.
inline void complete_row(__local Sum* sums, const __global STORAGE(A_DTYPE) * row, const __global STORAGE(W_DTYPE) * panel,
                         const PanelColumns* of_columns, int k) {
  const int first = k / STEP_K * STEP_K;
  Sum ordered[PARTS];
  for (int part = 0; part < PARTS; ++part) ordered[part] = ordered_part(sums, part);
#ifdef W_OFFSET
  const int too_much = W_OFFSET * row_sum(row, first);
#endif
  for (int part = 0; part < PARTS; ++part) {
    Sum sum = ordered[part];
#ifdef W_OFFSET
    sum -= too_much;
#endif
#if IS_I8
    sum += vload16(part, of_columns->start);
#endif
    for (int i = first; i < k; ++i)
      sum = TAIL(sum, LOAD(A_DTYPE)(row, i), PANEL16(W_DTYPE)(panel + (ulong)i * PANEL_UNITS(W_DTYPE), part * 16));
    sums[part] = sum;
  }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void grouped_gemm_dot(GROUPED_GEMM_PARAMETERS) {
  __local Sum tile_sums[PANELS_EACH * TILE_ROWS * PARTS];
  __local Step w_block[BLOCK_STEPS];
  __local ulong row_starts[TILE_ROWS];
  OFFSET_POINTERS;
  const RowTile tile = OWN_ROW_TILE;
  if (tile.count == 0) return;
  const int columns = min(PANEL, n - (int)get_group_id(0) * PANEL);
  const Epilogue epilogue = EPILOGUE_OF(tile.expert);
  PanelColumns of_columns[PANELS_EACH];
  FIND_ROWS

  for (int side = 0; side < PANELS_EACH; ++side) {
    const __global STORAGE(W_DTYPE)* panel = PANEL_OF(tile.expert, PANEL_AT(side));
    ENTER_K_WINDOW(panel, tile.expert)
    __local Sum* side_sums = tile_sums + side * TILE_ROWS * PARTS;
    load_columns(&epilogue, PANEL_AT(side) * PANEL, columns, &of_columns[side]);
    for (int i = 0; i < tile.count * PARTS; ++i) side_sums[i] = 0;

    const int steps = k / STEP_K;
    if (tile.count <= REGISTER_ROWS) {
      const int row = 0, count = tile.count, begin = 0, end = steps;
      __local Sum* sums = side_sums;
      ROW_POINTERS;
      FOR_ROWS(count, STREAMED_TILE)
    } else {
      for (int begin = 0; begin < steps; begin += BLOCK_STEPS) {
        const int end = min(begin + BLOCK_STEPS, steps);
        // The first rows keep the block for the others, and these fetch the next one a line a step: nothing would be
        // multiplied while the processor waits for it.
        const __global char* fetched = (const __global char*)panel + (ulong)end * STEP_BYTES;
        for (int row = 0; row < tile.count; row += REGISTER_ROWS) {
          const int count = min(REGISTER_ROWS, tile.count - row);
          __local Sum* sums = side_sums + row * PARTS;
          ROW_POINTERS;
          if (row == 0) KEPT_TILE(ROWS_6)
          else FOR_ROWS(count, BLOCK_TILE)
        }
      }
    }
    for (int row = 0; row < tile.count; ++row)
      complete_row(side_sums + row * PARTS, a + row_starts[row], panel, &of_columns[side], k);
  }
  STORE_ROWS
}
