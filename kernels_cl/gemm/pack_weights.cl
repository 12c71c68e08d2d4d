// Weight packing. A work-group fills one panel of one expert for K_BLOCK values of k: LANES = 1 where vectors are explicit,
// as on a CPU (one work-item moves blocks of 16 x 16 elements through registers), else 64 (neighbouring lanes write
// neighbouring columns).
#include "kernels_cl/common/any_dtype.clh"

#define PANEL 64
#define SIDE 16

// int4 in words of eight; `i` counts int4 and 16 of them start at a word.
inline float load_i4x8(const __global int* p, ulong i) { return (float)((p[i / 8] << (28 - 4 * (int)(i % 8))) >> 28); }
inline int8 int4_of_word(int word) { return ((int8)(word) << (int8)(28, 24, 20, 16, 12, 8, 4, 0)) >> 28; }
inline float16 load16_i4x8(const __global int* p, ulong i) {
  return convert_float16((int16)(int4_of_word(p[i / 8]), int4_of_word(p[i / 8 + 1])));
}

// One expert's matrix: element (row, k) at `first` + row * row_stride + k * k_stride. What it means is
// (element + offset) * scale, both [K / group_size, rows], null where there is none.
typedef struct {
  const __global STORAGE(SOURCE_DTYPE) * elements;
  const __global void *scale, *offset;
  ulong first, scale_first, offset_first;
  long row_stride, k_stride;
  int rows, group_size, scale_dtype, offset_dtype;
} Matrix;

inline ulong index_of(const Matrix* m, long row, int k) { return m->first + row * m->row_stride + k * m->k_stride; }

#define DEQUANTIZED(x, m, row, k, load)                                                            \
  if ((m)->scale) {                                                                                \
    const ulong at = (ulong)((k) / (m)->group_size) * (m)->rows + (row);                           \
    if ((m)->offset) x += load((m)->offset, (m)->offset_dtype, (m)->offset_first + at);            \
    x *= load((m)->scale, (m)->scale_dtype, (m)->scale_first + at);                                \
  }                                                                                                \
  return x;
inline float dequantized(float x, const Matrix* m, long row, int k) { DEQUANTIZED(x, m, row, k, load_any) }
inline float16 dequantized16(float16 x, const Matrix* m, long row, int k) { DEQUANTIZED(x, m, row, k, load16_any) }

// Columns [begin, end) of `to`, a panel whose column 0 is `row`; k in [k_begin, k_end).
inline void copy_columns(const Matrix* from, __global STORAGE(PACKED_DTYPE) * to, long row, int begin, int end,
                         int k_begin, int k_end) {
  for (int column = begin; column < end; ++column)
    for (int i = k_begin; i < k_end; ++i)
      STORE(PACKED_DTYPE)(dequantized(LOAD(SOURCE_DTYPE)(from->elements, index_of(from, row + column, i)), from,
                                      row + column, i),
                          to, (ulong)i * PANEL + column);
}

// The same for SIDE columns, where the rows of one k are neighbours.
inline void copy_block(const Matrix* from, __global STORAGE(PACKED_DTYPE) * to, long row, int column, int k_begin,
                       int k_end) {
  for (int i = k_begin; i < k_end; ++i)
    STORE16(PACKED_DTYPE)(dequantized16(LOAD16(SOURCE_DTYPE)(from->elements, index_of(from, row + column, i)), from,
                                        row + column, i),
                          to, (ulong)i * PANEL + column);
}

#define LOW_HALVES(a, b) (float16)((a).s0, (b).s0, (a).s1, (b).s1, (a).s2, (b).s2, (a).s3, (b).s3, (a).s4, (b).s4, \
                                   (a).s5, (b).s5, (a).s6, (b).s6, (a).s7, (b).s7)
#define HIGH_HALVES(a, b) (float16)((a).s8, (b).s8, (a).s9, (b).s9, (a).sa, (b).sa, (a).sb, (b).sb, (a).sc, (b).sc, \
                                    (a).sd, (b).sd, (a).se, (b).se, (a).sf, (b).sf)

// The same for SIDE columns and SIDE values of k, where a row's k are neighbours: interleaving the halves of the rows
// four times transposes them.
inline void transpose_block(const Matrix* from, __global STORAGE(PACKED_DTYPE) * to, long row, int column, int k) {
  float16 even[SIDE], odd[SIDE];
  for (int i = 0; i < SIDE; ++i) even[i] = LOAD16(SOURCE_DTYPE)(from->elements, index_of(from, row + column + i, k));
  for (int i = 0; i < 8; ++i) odd[2 * i] = LOW_HALVES(even[i], even[i + 8]), odd[2 * i + 1] = HIGH_HALVES(even[i], even[i + 8]);
  for (int i = 0; i < 8; ++i) even[2 * i] = LOW_HALVES(odd[i], odd[i + 8]), even[2 * i + 1] = HIGH_HALVES(odd[i], odd[i + 8]);
  for (int i = 0; i < 8; ++i) odd[2 * i] = LOW_HALVES(even[i], even[i + 8]), odd[2 * i + 1] = HIGH_HALVES(even[i], even[i + 8]);
  for (int i = 0; i < 8; ++i) even[2 * i] = LOW_HALVES(odd[i], odd[i + 8]), even[2 * i + 1] = HIGH_HALVES(odd[i], odd[i + 8]);
  for (int i = 0; i < SIDE; ++i)
    STORE16(PACKED_DTYPE)(dequantized16(even[i], from, row + column, k + i), to, (ulong)(k + i) * PANEL + column);
}

// Row r of a source is column first_column + r of its packed expert; columns of the last panel from zero_first become
// zero. Strides count elements, of which a word of int4 has eight.
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void pack_weights(
    const __global STORAGE(SOURCE_DTYPE) * source, ulong source_first, const __global void* scale, ulong scale_first,
    const __global void* offset, ulong offset_first, __global STORAGE(PACKED_DTYPE) * packed, ulong packed_first,
    long source_stride, long row_stride, long k_stride, long scale_stride, int scale_dtype, int offset_dtype,
    int group_size, long packed_stride, int rows, int k, int first_column, int zero_first) {
  const int k_begin = get_group_id(0) * K_BLOCK, k_end = min(k_begin + K_BLOCK, k);
  const long panel = first_column / PANEL + get_group_id(1), expert = get_group_id(2);
  __global STORAGE(PACKED_DTYPE)* to = packed + packed_first + expert * packed_stride + panel * k * PANEL;
  const Matrix from = {source + source_first,
                       scale,
                       offset,
                       expert * source_stride,
                       scale_first + expert * scale_stride,
                       offset_first + expert * scale_stride,
                       row_stride,
                       k_stride,
                       rows,
                       group_size,
                       scale_dtype,
                       offset_dtype};
  // Columns of this panel, and the row that would be its column 0.
  const int begin = max(0L, first_column - panel * PANEL), end = min((long)PANEL, first_column + rows - panel * PANEL);
  const long row = panel * PANEL - first_column;
#if LANES == 1
  for (int column = begin; column < end; column += SIDE) {
    for (int i = k_begin; i < k_end; i += SIDE) {
      if (row_stride == 1 && column + SIDE <= end)
        copy_block(&from, to, row, column, i, min(i + SIDE, k_end));
      else if (k_stride == 1 && column + SIDE <= end && i + SIDE <= k_end)
        transpose_block(&from, to, row, column, i);
      else
        copy_columns(&from, to, row, column, min(column + SIDE, end), i, min(i + SIDE, k_end));
    }
  }
#else
  for (int column = begin + get_local_id(0); column < end; column += LANES)
    copy_columns(&from, to, row, column, column + 1, k_begin, k_end);
#endif
  const int zero_begin = clamp(zero_first - panel * PANEL, 0L, (long)PANEL);
  for (int column = zero_begin + get_local_id(0); column < PANEL; column += LANES)
    for (int i = k_begin; i < k_end; ++i) STORE(PACKED_DTYPE)(0.0f, to, (ulong)i * PANEL + column);
}
