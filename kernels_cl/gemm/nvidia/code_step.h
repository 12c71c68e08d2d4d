#pragma once
// The length of a K-step of mma.sync with codes; read by C++ and OpenCL C alike.

// How many lines of 128 bytes a step has of each row. Two lines halve the number of barriers, which pays with 4-bit
// codes and few 16-bit rows. More rows leave no registers for the scales of so many k.
// @param element_bytes  of the rows
#define CODE_STEP_LINES(tile_rows, element_bytes, code_bits) \
  ((tile_rows) <= 16 && (element_bytes) == 2 && (code_bits) == 4 ? 2 : 1)

#ifndef __cplusplus
#include "kernels_cl/gemm/panels.clh"
enum { STEP_LINES = CODE_STEP_LINES(TILE_ROWS, OF(bytes_of, A_DTYPE), OF(panel_units, W_DTYPE) * 8 / PANEL) };
#endif
