#pragma once
// How long a step of mma.sync by codes is; read by C++ and OpenCL C alike.

// Lines of 128 bytes that a step has of each row. Two make half as many barriers; they pay with 4-bit codes and few
// rows of 16 bits. More rows leave no registers for the scales of so many k.
// @param element_bytes  of the rows
#define CODE_STEP_LINES(tile_rows, element_bytes, code_bits) \
  ((tile_rows) <= 16 && (element_bytes) == 2 && (code_bits) == 4 ? 2 : 1)

#ifndef __cplusplus
#include "kernels_cl/gemm/panels.clh"
enum { STEP_LINES = CODE_STEP_LINES(TILE_ROWS, OF(bytes_of, A_DTYPE), OF(panel_units, W_DTYPE) * 8 / PANEL) };
#endif
