// Packing of quantized weights, see pack_codes.hpp and panels.clh. Source codes of CODE_BITS stand in units of
// UNIT_BYTES, each with UNIT_ROWS (along n) or UNIT_COLUMNS (along k) of them.
#include "kernels_cl/gemm/panels.clh"

#define LANES 16

// Element (n, k) of the stored matrix; `first_unit` is where `source` starts.
inline int source_code(const __global uchar* source, long first_unit, long row_stride, long column_stride, long n,
                       long k) {
  const long unit = n / UNIT_ROWS * row_stride + k / UNIT_COLUMNS * column_stride - first_unit;
  const int i = (int)(n % UNIT_ROWS + k % UNIT_COLUMNS), position = INTERLEAVED ? i % 2 * 4 + i / 2 : i;
  const int bit = position * CODE_BITS, shift = bit % 8;
  const __global uchar* at = source + unit * UNIT_BYTES + bit / 8;
  int code = at[0] >> shift;
  if (shift + CODE_BITS > 8) code |= at[1] << (8 - shift);
  return code & ((1 << CODE_BITS) - 1);
}

// The code of a column in a panel's row.
inline int panel_code(const __global uchar* row, int column) {
#if CODE_BITS == 8
  return row[column];
#else
  const int low = (row[NIBBLE_BYTE(column)] >> NIBBLE_SHIFT(column)) & 15;
  return CODE_BITS == 4 ? low : low | ((row[32 + column % 16] >> (column / 16 * 2)) & 3) << 4;
#endif
}

// Row r of the source is column first_column + r of its packed expert; columns of the last panel from zero_first become
// zero. A work-item makes the bytes of the columns lane, lane + 16, lane + 32 and lane + 48, and leaves in them what
// belongs to other matrices. `flip` is XORed to a code.
__kernel __attribute__((reqd_work_group_size(LANES, 4, 1))) void pack_codes(
    const __global uchar* source, ulong source_first, __global uchar* packed, ulong packed_first, long first_unit,
    long row_stride, long column_stride, long first_row, long first_k, long expert_panel, int rows, int k,
    int first_column, int zero_first, int flip, int k_block) {
  const int lane = get_local_id(0), k_begin = get_group_id(0) * k_block, k_end = min(k_begin + k_block, k);
  const long panel = first_column / PANEL + get_group_id(2), row = panel * PANEL - first_column;
  const int row_bytes = PANEL * CODE_BITS / 8;
  __global uchar* to = packed + packed_first + (expert_panel + panel) * k * row_bytes;
  source += source_first;
  for (int i = k_begin + (int)get_local_id(1); i < k_end; i += 4) {
    __global uchar* at = to + (long)i * row_bytes;
    int code[4];
    for (int part = 0; part < 4; ++part) {
      const int column = part * LANES + lane;
      const bool own = row + column >= 0 && row + column < rows;
      if (own)
        code[part] = flip ^ source_code(source, first_unit, row_stride, column_stride, first_row + row + column, first_k + i);
      else
        code[part] = panel * PANEL + column >= zero_first ? 0 : panel_code(at, column);
    }
#if CODE_BITS == 8
    for (int part = 0; part < 4; ++part) at[part * LANES + lane] = (uchar)code[part];
#else
    at[lane] = (uchar)((code[0] & 15) | (code[1] & 15) << 4);
    at[LANES + lane] = (uchar)((code[2] & 15) | (code[3] & 15) << 4);
#if CODE_BITS == 6
    at[2 * LANES + lane] = (uchar)(code[0] >> 4 | (code[1] >> 4) << 2 | (code[2] >> 4) << 4 | (code[3] >> 4) << 6);
#endif
#endif
  }
}

#if SCALE_BYTES == 4
typedef uint Scale;
#elif SCALE_BYTES == 2
typedef ushort Scale;
#else
typedef uchar Scale;
#endif

// Scales of groups of K, each of group_rows rows, become [panel][group][column].
__kernel __attribute__((reqd_work_group_size(PANEL, 1, 1))) void pack_scales(
    const __global Scale* source, ulong source_first, const __global int* source_group, ulong source_group_first,
    __global Scale* packed, ulong packed_first, long row_stride, long outer_stride, long inner_stride, int inner,
    long expert_panel, int rows, int groups, int group_rows, int first_column, int zero_first) {
  const long panel = first_column / PANEL + get_group_id(0);
  const long row = panel * PANEL + get_local_id(0) - first_column;
  const int group = get_global_id(1);
  __global Scale* at = packed + packed_first + ((expert_panel + panel) * groups + group) * PANEL + get_local_id(0);
  if (row >= 0 && row < rows) {
    const int from = source_group ? source_group[source_group_first + group] : group;
    *at = source[source_first + row / group_rows * row_stride + from / inner * outer_stride + from % inner * inner_stride];
  } else if (panel * PANEL + (long)get_local_id(0) >= zero_first) {
    *at = 0;
  }
}

// Zero points likewise. They are codes, with a sign if sign_bit is not 0, to which `add` is added.
__kernel __attribute__((reqd_work_group_size(PANEL, 1, 1))) void pack_zeros(
    const __global uchar* source, ulong source_first, const __global int* source_group, ulong source_group_first,
    __global short* packed, ulong packed_first, long first_unit, long row_stride, long column_stride, long first_row,
    long first_group, long expert_panel, int rows, int groups, int group_rows, int first_column, int zero_first,
    int sign_bit, int add) {
  const long panel = first_column / PANEL + get_group_id(0);
  const long row = panel * PANEL + get_local_id(0) - first_column;
  const int group = get_global_id(1);
  __global short* at = packed + packed_first + ((expert_panel + panel) * groups + group) * PANEL + get_local_id(0);
  if (row >= 0 && row < rows) {
    const int from = source_group ? source_group[source_group_first + group] : group;
    const int code = source_code(source + source_first, first_unit, row_stride, column_stride,
                                 first_row + row / group_rows, first_group + from);
    *at = (short)((code ^ sign_bit) - sign_bit + add);
  } else if (panel * PANEL + (long)get_local_id(0) >= zero_first) {
    *at = 0;
  }
}
