// Packs quantized weights into panels, see pack_codes.hpp and panels.clh. The source has codes of -DCODE_BITS bits in
// units of -DUNIT_BYTES bytes; a unit holds -DUNIT_ROWS codes along n or -DUNIT_COLUMNS codes along k.
#include "kernels_cl/gemm/pack_codes_args.h"
#include "kernels_cl/gemm/panels.clh"

enum { LANES = PACK_LANES };

// Code (row, column) of the source.
inline int source_code(const __global uchar* source, pack_source of, long row, long column) {
  const long n = of.first_row + row, k = of.first_k + column;
  const long unit = n / UNIT_ROWS * of.row_stride + k / UNIT_COLUMNS * of.column_stride - of.first_unit;
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
  const int low = (row[nibble_byte(column)] >> nibble_shift(column)) & 15;
  return CODE_BITS == 4 ? low : low | ((row[32 + column % 16] >> (column / 16 * 2)) & 3) << 4;
#endif
}

// In n_major panels a work-item writes the bytes of columns lane, lane + 16, lane + 32 and lane + 48. It keeps the
// codes of other matrices in these bytes. In k_major panels it writes four k of every PACK_K_LANES-th column, in
// k_words panels whole words.
__kernel __attribute__((reqd_work_group_size(PACK_LANES, PACK_K_LANES, 1))) void pack_codes(
    const __global uchar* source, __global uchar* packed, const pack_codes_args given) {
  const pack_codes_args args = given;
  const pack_columns columns = args.columns;
  const int lane = get_local_id(0);
  const int k_begin = get_group_id(0) * args.k_block, k_end = min(k_begin + args.k_block, args.k);
  const long panel = columns.first_column / PANEL + get_group_id(2), row = panel * PANEL - columns.first_column;
  const int row_bytes = PANEL * CODE_BITS / 8;
  __global uchar* to = packed + args.packed_first + (columns.expert_panel + panel) * args.k * row_bytes;
  source += args.source_first;
#if W_K_MAJOR
  for (int i = k_begin + lane * 4; i < k_end; i += PACK_LANES * 4)
    for (int column = get_local_id(1); column < PANEL; column += PACK_K_LANES) {
      const bool own = row + column >= 0 && row + column < columns.rows;
      if (!own && panel * PANEL + column < columns.zero_first) continue;
      uint codes = 0;
      for (int j = 0; j < 4 && own; ++j)
        codes |= (uint)(args.flip ^ source_code(source, args.codes, row + column, i + j)) << (j * 8);
      *(__global uint*)(to + k_major_at(i, column)) = codes;
    }
#elif W_K_WORDS
  const int word_k = WORD_BITS / CODE_BITS;
  for (int i = k_begin + (int)get_local_id(1) * word_k; i < k_end; i += PACK_K_LANES * word_k)
    for (int column = lane; column < PANEL; column += PACK_LANES) {
      const bool own = row + column >= 0 && row + column < columns.rows;
      if (!own && panel * PANEL + column < columns.zero_first) continue;
      uint word = 0;
      for (int j = i; j < i + word_k && own; ++j)
        word |= (uint)((args.flip ^ source_code(source, args.codes, row + column, j)) & ((1 << CODE_BITS) - 1))
                << k_word_shift(j, CODE_BITS);
      ((__global uint*)to)[k_word_at(i, column, CODE_BITS)] = word;
    }
#else
  for (int i = k_begin + (int)get_local_id(1); i < k_end; i += PACK_K_LANES) {
    __global uchar* at = to + (long)i * row_bytes;
    int code[4];
    for (int part = 0; part < 4; ++part) {
      const int column = part * LANES + lane;
      const bool own = row + column >= 0 && row + column < columns.rows;
      if (own)
        code[part] = args.flip ^ source_code(source, args.codes, row + column, i);
      else
        code[part] = panel * PANEL + column >= columns.zero_first ? 0 : panel_code(at, column);
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
#endif
}

#if SCALE_BYTES == 4
typedef uint Scale;
#elif SCALE_BYTES == 2
typedef ushort Scale;
#else
typedef uchar Scale;
#endif

// Packs scales of groups of K as [panel][group][column].
__kernel __attribute__((reqd_work_group_size(PANEL, 1, 1))) void pack_scales(const __global Scale* scale,
                                                                             const __global int* source_group,
                                                                             __global Scale* packed_scale,
                                                                             const pack_scales_args given) {
  const pack_scales_args args = given;
  const pack_columns columns = args.columns;
  const long panel = columns.first_column / PANEL + get_group_id(0);
  const long row = panel * PANEL + get_local_id(0) - columns.first_column;
  const int group = get_global_id(1);
  __global Scale* at = packed_scale + args.packed_scale_first +
                       ((columns.expert_panel + panel) * args.groups + group) * PANEL + get_local_id(0);
  if (row >= 0 && row < columns.rows) {
    const int from = source_group ? source_group[args.source_group_first + group] : group;
    *at = scale[args.scale_first + row / args.group_rows * args.row_stride + from / args.inner * args.outer_stride +
                from % args.inner * args.inner_stride];
  } else if (panel * PANEL + (long)get_local_id(0) >= columns.zero_first) {
    *at = 0;
  }
}

// Packs zero points in the same order.
__kernel __attribute__((reqd_work_group_size(PANEL, 1, 1))) void pack_zeros(const __global uchar* zero,
                                                                            const __global int* source_group,
                                                                            __global short* packed_zero,
                                                                            const pack_zeros_args given) {
  const pack_zeros_args args = given;
  const pack_columns columns = args.columns;
  const long panel = columns.first_column / PANEL + get_group_id(0);
  const long row = panel * PANEL + get_local_id(0) - columns.first_column;
  const int group = get_global_id(1);
  __global short* at = packed_zero + args.packed_zero_first +
                       ((columns.expert_panel + panel) * args.groups + group) * PANEL + get_local_id(0);
  if (row >= 0 && row < columns.rows) {
    const int from = source_group ? source_group[args.source_group_first + group] : group;
    const int code = source_code(zero + args.zero_first, args.codes, row / args.group_rows, from);
    *at = (short)((code ^ args.sign_bit) - args.sign_bit + args.add);
  } else if (panel * PANEL + (long)get_local_id(0) >= columns.zero_first) {
    *at = 0;
  }
}
