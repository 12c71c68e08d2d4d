// Weight packing. A work-group fills one panel for K_BLOCK values of k: LANES = 1 where vectors are explicit, as on a CPU
// (one work-item turns blocks of 16 x 16 elements in registers), else 64 (neighbouring lanes write neighbouring columns).
#include "kernels_cl/lib/dtype.clh"

#define PANEL 64
#define SIDE 16

// Columns [begin, end) of `to`, a panel, from rows of `from` that start at column 0; k in [k_begin, k_end).
inline void copy_columns(const __global STORAGE(SOURCE_DTYPE) * from, __global STORAGE(PACKED_DTYPE) * to, int begin,
                         int end, int k_begin, int k_end, long row_stride, long k_stride) {
  for (int column = begin; column < end; ++column)
    for (int i = k_begin; i < k_end; ++i)
      STORE(PACKED_DTYPE)(LOAD(SOURCE_DTYPE)(from, column * row_stride + i * k_stride), to, (ulong)i * PANEL + column);
}

#define LOW_HALVES(a, b) (float16)((a).s0, (b).s0, (a).s1, (b).s1, (a).s2, (b).s2, (a).s3, (b).s3, (a).s4, (b).s4, \
                                   (a).s5, (b).s5, (a).s6, (b).s6, (a).s7, (b).s7)
#define HIGH_HALVES(a, b) (float16)((a).s8, (b).s8, (a).s9, (b).s9, (a).sa, (b).sa, (a).sb, (b).sb, (a).sc, (b).sc, \
                                    (a).sd, (b).sd, (a).se, (b).se, (a).sf, (b).sf)

// The same for SIDE columns and SIDE values of k, where a row's k are neighbours: interleaving the halves of the rows
// four times transposes them.
inline void transpose_block(const __global STORAGE(SOURCE_DTYPE) * from, __global STORAGE(PACKED_DTYPE) * to, int column,
                            int k, long row_stride) {
  float16 even[SIDE], odd[SIDE];
  for (int i = 0; i < SIDE; ++i) even[i] = LOAD16(SOURCE_DTYPE)(from, (column + i) * row_stride + k);
  for (int i = 0; i < 8; ++i) odd[2 * i] = LOW_HALVES(even[i], even[i + 8]), odd[2 * i + 1] = HIGH_HALVES(even[i], even[i + 8]);
  for (int i = 0; i < 8; ++i) even[2 * i] = LOW_HALVES(odd[i], odd[i + 8]), even[2 * i + 1] = HIGH_HALVES(odd[i], odd[i + 8]);
  for (int i = 0; i < 8; ++i) odd[2 * i] = LOW_HALVES(even[i], even[i + 8]), odd[2 * i + 1] = HIGH_HALVES(even[i], even[i + 8]);
  for (int i = 0; i < 8; ++i) even[2 * i] = LOW_HALVES(odd[i], odd[i + 8]), even[2 * i + 1] = HIGH_HALVES(odd[i], odd[i + 8]);
  for (int i = 0; i < SIDE; ++i) STORE16(PACKED_DTYPE)(even[i], to, (ulong)(k + i) * PANEL + column);
}

// Source row r is column first_column + r of the packed expert; columns of the last panel from zero_first become zero.
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void pack_weights(
    const __global STORAGE(SOURCE_DTYPE) * source, ulong source_first, __global STORAGE(PACKED_DTYPE) * packed,
    ulong packed_first, long row_stride, long k_stride, int rows, int k, int first_column, int zero_first) {
  const int k_begin = get_group_id(0) * K_BLOCK, k_end = min(k_begin + K_BLOCK, k);
  const long panel = first_column / PANEL + get_group_id(1);
  __global STORAGE(PACKED_DTYPE)* to = packed + packed_first + panel * k * PANEL;
  // Columns of this panel, and the source as it would start at the panel's column 0.
  const int begin = max(0L, first_column - panel * PANEL), end = min((long)PANEL, first_column + rows - panel * PANEL);
  const __global STORAGE(SOURCE_DTYPE)* from = source + source_first + (panel * PANEL - first_column) * row_stride;
#if LANES == 1
  for (int column = begin; column < end; column += SIDE) {
    for (int i = k_begin; i < k_end; i += SIDE) {
      if (k_stride == 1 && column + SIDE <= end && i + SIDE <= k_end)
        transpose_block(from, to, column, i, row_stride);
      else
        copy_columns(from, to, column, min(column + SIDE, end), i, min(i + SIDE, k_end), row_stride, k_stride);
    }
  }
#else
  for (int column = begin + get_local_id(0); column < end; column += LANES)
    copy_columns(from, to, column, column + 1, k_begin, k_end, row_stride, k_stride);
#endif
  const int zero_begin = clamp(zero_first - panel * PANEL, 0L, (long)PANEL);
  for (int column = zero_begin + get_local_id(0); column < PANEL; column += LANES)
    for (int i = k_begin; i < k_end; ++i) STORE(PACKED_DTYPE)(0.0f, to, (ulong)i * PANEL + column);
}
