// Quantizes blocks of 32 numbers along an axis, with a power of two as the scale of each block. x is
// [N, length, inner]; blocks run along `length`. A work-group takes 64 neighbouring blocks. On a CPU (LANES = 1) its
// work-item takes all of them, on a GPU each work-item takes one.
#include "kernels_cl/ascend/mx_quantize_args.h"
#include "kernels_cl/common/dtype.clh"
#include "kernels_cl/quantize/minifloat.clh"
#include "kernels_cl/common/rows.clh"

typedef struct {
  float16 low, high;
} Block;

typedef struct {
  Minifloat format;
  int scale_rule, rounding, least_scale, least_amax_bits;
} Quantizer;

// Loads `count` numbers, `stride` apart, and zeros up to a whole block.
inline Block load_block(const __global STORAGE(X_DTYPE)* x, long stride, int count) {
  Block block;
#if LANES == 1
  if (stride == 1) {
    block.low = OF(load_upto16, X_DTYPE)(x, 0, count);
    block.high = OF(load_upto16, X_DTYPE)(x, 16, count - 16);
    return block;
  }
#endif
  float part[MX_BLOCK];
  for (int j = 0; j < MX_BLOCK; ++j) part[j] = j < count ? OF(load, X_DTYPE)(x, j * stride) : 0.0f;
  block.low = vload16(0, part);
  block.high = vload16(1, part);
  return block;
}

inline int largest_magnitude(Block block) {
  const int16 sixteen = max(as_int16(block.low) & 0x7fffffff, as_int16(block.high) & 0x7fffffff);
  const int8 eight = max(sixteen.lo, sixteen.hi);
  const int4 four = max(eight.lo, eight.hi);
  const int2 two = max(four.lo, four.hi);
  return max(two.x, two.y);
}

inline int quantize_block(Quantizer q, Block block, uchar* codes) {
  const int largest = largest_magnitude(block);
  const int amax = ZEROS_STAY && largest == 0 ? 0 : max(largest, q.least_amax_bits);
  const int byte = block_scale(q.format, q.scale_rule, amax, q.least_scale);
  const int keep = byte == SCALE_NAN ? 0 : -1;
  vstore16(convert_uchar16(minifloat_codes(q.format, block.low, byte - 127, q.rounding) & keep), 0, codes);
  vstore16(convert_uchar16(minifloat_codes(q.format, block.high, byte - 127, q.rounding) & keep), 1, codes);
  return byte;
}

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void mx_quantize(const __global STORAGE(X_DTYPE)* x,
                                                                             const __global int* index,
                                                                             const __global int* row_ends,
                                                                             __global uchar* y, __global uchar* scale,
                                                                             const mx_quantize_args given) {
  const mx_quantize_args args = given;
  const Quantizer q = {{args.bits, args.mantissa_bits, args.min_exponent, args.largest},
                       args.scale_rule,
                       args.rounding,
                       args.least_scale,
                       as_int(args.least_amax)};
  const int length = args.length, packed = args.bits == 4, blocks = (length - 1) / MX_BLOCK + 1;
  const long inner = args.inner;
  // A byte holds two codes, neighbours on the last axis. They are of one block if that axis is `length`, else of two.
  const int columns = packed && inner > 1 ? 2 : 1;
  const long units = blocks * (inner / columns), groups = (units - 1) / MX_GROUP_BLOCKS + 1;
  const long row = get_group_id(0) / groups, first = get_group_id(0) % groups * MX_GROUP_BLOCKS;
  const int slot = index ? index[args.index_first + row] : 0;
  const long source = index ? slot / DIVISOR(args.divisor) : row;
  if (slot < 0 || source >= args.rows) return;
  if (row_ends && !row_is_valid(row, row_ends + args.row_ends_first, args.experts, args.rows_per_expert)) return;
  x += args.x_first + source * args.x_stride;
  y += args.y_first + row * args.y_stride;
  scale += args.scale_first + row * args.scale_stride;

  for (long unit = first + get_local_id(0); unit < min(units, first + MX_GROUP_BLOCKS); unit += LANES) {
    const long block = unit / (inner / columns), column = unit % (inner / columns) * columns;
    const long begin = block * MX_BLOCK * inner + column;
    const int count = (int)min((long)MX_BLOCK, length - block * MX_BLOCK);
    uchar codes[2 * MX_BLOCK];
    for (int c = 0; c < columns; ++c) {
      __global uchar* to = scale + (block / 2 * inner + column + c) * 2 + block % 2;
      *to = (uchar)quantize_block(q, load_block(x + begin + c, inner, count), codes + c * MX_BLOCK);
      if (block % 2 == 0 && block == blocks - 1) to[1] = 0;
    }
    if (!packed) {
      for (int j = 0; j < MX_BLOCK; ++j)
        if (j < count) y[begin + j * inner] = codes[j];
    } else if (columns == 1) {
      for (int j = 0; j < MX_BLOCK; j += 2)
        if (j < count) y[(begin + j) / 2] = codes[j] | codes[j + 1] << 4;
    } else {
      for (int j = 0; j < MX_BLOCK; ++j)
        if (j < count) y[(begin + j * inner) / 2] = codes[j] | codes[MX_BLOCK + j] << 4;
    }
  }
}
