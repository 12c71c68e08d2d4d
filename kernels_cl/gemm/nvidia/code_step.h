#pragma once
// How the kernels take codes, read by C++ and OpenCL C alike.

// Lines of 128 bytes of a row in a step: two of 4-bit codes with few rows of 16 bits, which makes half as many
// barriers. More rows leave no registers for the scales of so many k.
#define CODE_STEP_LINES(tile_rows, row_bytes, code_bits) \
  ((tile_rows) <= 16 && (row_bytes) == 2 && (code_bits) == 4 ? 2 : 1)
