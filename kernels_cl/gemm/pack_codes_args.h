#pragma once
#include "kernels_cl/common/kernel_args.h"

enum { PACK_LANES = 16, PACK_K_LANES = 4 };  // work-items of a work-group of pack_codes: along columns, along k

// Where the packed rows go: row r becomes column first_column + r of its expert, whose first panel is expert_panel. In
// the last panel, columns from zero_first on become zero.
typedef struct {
  long expert_panel;
  int rows, first_column, zero_first, pad;
} pack_columns;
KERNEL_ARGS(pack_columns, 24);

// Layout of codes in units, see CodeLayout. first_unit is the unit at which the source buffer starts.
typedef struct {
  long first_unit, row_stride, column_stride, first_row, first_k;
} pack_source;
KERNEL_ARGS(pack_source, 40);

typedef struct {
  pack_columns columns;
  pack_source codes;
  long source_first, packed_first;
  int k, k_block;
  int flip, pad;  // flip: XORed to a code
} pack_codes_args;
KERNEL_ARGS(pack_codes_args, 96);

// Scales of groups of K; group_rows rows share a scale.
typedef struct {
  pack_columns columns;
  long scale_first, source_group_first, packed_scale_first;
  long row_stride, outer_stride, inner_stride;
  int inner, groups, group_rows, pad;
} pack_scales_args;
KERNEL_ARGS(pack_scales_args, 88);

typedef struct {
  pack_columns columns;
  pack_source codes;
  long zero_first, source_group_first, packed_zero_first;
  int groups, group_rows;
  int sign_bit, add;  // codes have a sign if sign_bit is not 0; `add` is added to them
} pack_zeros_args;
KERNEL_ARGS(pack_zeros_args, 104);
