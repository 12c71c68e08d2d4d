// Packs weights into panels. A work-group fills one panel of one expert for -DK_BLOCK values of k. -DLANES=1 where
// vectors are explicit, as on a CPU: one work-item moves blocks of 16 x 16 elements through registers. -DLANES=64
// elsewhere: neighbouring lanes write neighbouring columns.
#include "kernels_cl/common/any_dtype.clh"
#include "kernels_cl/gemm/pack_weights_args.h"
#include "kernels_cl/gemm/panel_order.h"

enum { PANEL = PANEL_COLUMNS, SIDE = 16 };
#ifndef W_K_WORDS
#define W_K_WORDS 0
#endif

// int4 elements, eight to a word. `i` counts elements; a vector of 16 elements starts at a whole word.
inline float load_i4x8(const __global int* p, ulong i) { return (float)((p[i / 8] << (28 - 4 * (int)(i % 8))) >> 28); }
inline int8 int4_of_word(int word) { return ((int8)(word) << (int8)(28, 24, 20, 16, 12, 8, 4, 0)) >> 28; }
inline float16 load16_i4x8(const __global int* p, ulong i) {
  return convert_float16((int16)(int4_of_word(p[i / 8]), int4_of_word(p[i / 8 + 1])));
}

// One expert's source matrix. Element (row, k) is at `first` + row * row_stride + k * k_stride. Its value is (element +
// offset) * scale. `offset` and `scale` are [K / group_size, rows], or null if absent.
typedef struct {
  const __global STORAGE(SOURCE_DTYPE)* elements;
  const __global void *scale, *offset;
  ulong first, scale_first, offset_first;
  long row_stride, k_stride;
  int rows, group_size, scale_dtype, offset_dtype;
} Matrix;

inline ulong index_of(const Matrix* m, long row, int k) { return m->first + row * m->row_stride + k * m->k_stride; }

// Index of the element's scale and offset.
inline ulong group_index_of(const Matrix* m, long row, int k) { return (ulong)(k / m->group_size) * m->rows + row; }

inline float dequantized(float x, const Matrix* m, long row, int k) {
  if (!m->scale) return x;
  const ulong at = group_index_of(m, row, k);
  if (m->offset) x += load_any(m->offset, m->offset_dtype, m->offset_first + at);
  return x * load_any(m->scale, m->scale_dtype, m->scale_first + at);
}
inline float16 dequantized16(float16 x, const Matrix* m, long row, int k) {
  if (!m->scale) return x;
  const ulong at = group_index_of(m, row, k);
  if (m->offset) x += load16_any(m->offset, m->offset_dtype, m->offset_first + at);
  return x * load16_any(m->scale, m->scale_dtype, m->scale_first + at);
}

// Position of element (k, column) in a panel. in_rows: each k has a row of 64 columns; else the panel is in words.
inline ulong panel_at(bool in_rows, int k, int column) {
  const int bits = OF(bytes_of, PACKED_DTYPE) * 8, word_k = WORD_BITS / bits;
  return in_rows ? (ulong)k * PANEL + column : (ulong)k_word_at(k, column, bits) * word_k + k % word_k;
}

// Copies columns [begin, end) and k in [k_begin, k_end) to the panel `to`, whose column 0 is source row `row`.
inline void copy_columns(const Matrix* from, __global STORAGE(PACKED_DTYPE)* to, long row, int begin, int end,
                         int k_begin, int k_end, bool in_rows) {
  for (int column = begin; column < end; ++column)
    for (int i = k_begin; i < k_end; ++i) OF(store, PACKED_DTYPE)
  (dequantized(OF(load, SOURCE_DTYPE)(from->elements, index_of(from, row + column, i)), from, row + column, i), to,
   panel_at(in_rows, i, column));
}

// The same for SIDE columns, if the source's rows of one k are neighbours in memory.
inline void copy_block(const Matrix* from, __global STORAGE(PACKED_DTYPE)* to, long row, int column, int k_begin,
                       int k_end) {
  for (int i = k_begin; i < k_end; ++i) OF(store16, PACKED_DTYPE)
  (dequantized16(OF(load16, SOURCE_DTYPE)(from->elements, index_of(from, row + column, i)), from, row + column, i), to,
   (ulong)i * PANEL + column);
}

// Interleaves the elements of two low or two high halves.
inline float16 low_halves(float16 a, float16 b) {
  return (float16)(a.s0, b.s0, a.s1, b.s1, a.s2, b.s2, a.s3, b.s3, a.s4, b.s4, a.s5, b.s5, a.s6, b.s6, a.s7, b.s7);
}
inline float16 high_halves(float16 a, float16 b) {
  return (float16)(a.s8, b.s8, a.s9, b.s9, a.sa, b.sa, a.sb, b.sb, a.sc, b.sc, a.sd, b.sd, a.se, b.se, a.sf, b.sf);
}
inline void interleave_halves(const float16* from, float16* to) {
  for (int i = 0; i < 8; ++i) {
    to[2 * i] = low_halves(from[i], from[i + 8]);
    to[2 * i + 1] = high_halves(from[i], from[i + 8]);
  }
}

// The same for SIDE columns and SIDE values of k, if a row's k are neighbours in memory. Interleaving the halves of the
// rows four times transposes the block.
inline void transpose_block(const Matrix* from, __global STORAGE(PACKED_DTYPE)* to, long row, int column, int k) {
  float16 even[SIDE], odd[SIDE];
  for (int i = 0; i < SIDE; ++i)
    even[i] = OF(load16, SOURCE_DTYPE)(from->elements, index_of(from, row + column + i, k));
  interleave_halves(even, odd);
  interleave_halves(odd, even);
  interleave_halves(even, odd);
  interleave_halves(odd, even);
  for (int i = 0; i < SIDE; ++i)
    OF(store16, PACKED_DTYPE)(dequantized16(even[i], from, row + column, k + i), to, (ulong)(k + i) * PANEL + column);
}

#if W_K_WORDS && LANES == 1
// Converts a panel in place from rows of one k to words; both take the same memory.
inline void make_words(__global STORAGE(PACKED_DTYPE)* panel, int k_begin, int k_end) {
  const int word_k = WORD_BITS / (OF(bytes_of, PACKED_DTYPE) * 8);
  for (int i = k_begin; i < k_end; i += word_k) {
    __global STORAGE(PACKED_DTYPE)* rows = panel + (ulong)i * PANEL;
    uint16 words[PANEL / SIDE];
    for (int part = 0; part < PANEL / SIDE; ++part) {
      words[part] = 0;
      for (int j = 0; j < word_k; ++j)
#if OF(IS_I8, PACKED_DTYPE)
        words[part] |= convert_uint16(((const __global uchar16*)rows)[j * (PANEL / SIDE) + part]) << (uint)(j * 8);
#else
        words[part] |= convert_uint16(((const __global ushort16*)rows)[j * (PANEL / SIDE) + part]) << (uint)(j * 16);
#endif
    }
    for (int part = 0; part < PANEL / SIDE; ++part) ((__global uint16*)rows)[part] = words[part];
  }
}
#endif

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void pack_weights(
    const __global STORAGE(SOURCE_DTYPE)* source, const __global void* scale, const __global void* offset,
    __global STORAGE(PACKED_DTYPE)* packed, const pack_weights_args given) {
  const pack_weights_args args = given;
  const int k_begin = get_group_id(0) * K_BLOCK, k_end = min(k_begin + K_BLOCK, args.k);
  const long panel = args.first_column / PANEL + get_group_id(1), expert = get_group_id(2);
  __global STORAGE(PACKED_DTYPE)* to =
      packed + args.packed_first + expert * args.packed_stride + panel * args.k * PANEL;
  const Matrix from = {source + args.source_first,
                       scale,
                       offset,
                       expert * args.source_stride,
                       args.scale_first + expert * args.scale_stride,
                       args.offset_first + expert * args.scale_stride,
                       args.row_stride,
                       args.k_stride,
                       args.rows,
                       args.group_size,
                       args.scale_dtype,
                       args.offset_dtype};
  // `row`: the source row that would be this panel's column 0. [begin, end): the panel's columns from the source.
  const long row = panel * PANEL - args.first_column;
  const int begin = max(0L, -row), end = min((long)PANEL, args.rows - row);
  const int zero_begin = clamp(args.zero_first - panel * PANEL, 0L, (long)PANEL);
  // A panel that is filled whole is written in rows, which become words at the end. A panel that also has columns of
  // other matrices is written in words at once.
  const bool makes_words = W_K_WORDS && LANES == 1 && begin == 0 && zero_begin <= end,
             in_rows = makes_words || !W_K_WORDS;
#if LANES == 1
  for (int column = begin; column < end; column += SIDE) {
    for (int i = k_begin; i < k_end; i += SIDE) {
      if (in_rows && args.row_stride == 1 && column + SIDE <= end)
        copy_block(&from, to, row, column, i, min(i + SIDE, k_end));
      else if (in_rows && args.k_stride == 1 && column + SIDE <= end && i + SIDE <= k_end)
        transpose_block(&from, to, row, column, i);
      else
        copy_columns(&from, to, row, column, min(column + SIDE, end), i, min(i + SIDE, k_end), in_rows);
    }
  }
#else
  for (int column = begin + get_local_id(0); column < end; column += LANES)
    copy_columns(&from, to, row, column, column + 1, k_begin, k_end, in_rows);
#endif
  for (int column = zero_begin + get_local_id(0); column < PANEL; column += LANES)
    for (int i = k_begin; i < k_end; ++i) OF(store, PACKED_DTYPE)(0.0f, to, panel_at(in_rows, i, column));
#if W_K_WORDS && LANES == 1
  if (makes_words) make_words(to, k_begin, k_end);
#endif
}
