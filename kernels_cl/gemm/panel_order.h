#pragma once
// Where the value of (k, column) stands in a panel that is not [K][64]; read by C++ and OpenCL C alike.

enum { PANEL_COLUMNS = 64, WORD_BITS = 32, K_MAJOR_BLOCK = 128 };

// In blocks of K_MAJOR_BLOCK k, whose lines hold one column each: of 16 columns first the even ones, so that a lane of
// a tensor core's operand has an even column and the odd one after it. Counts values.
inline int k_major_line(int column) { return column / 16 * 16 + column % 2 * 8 + column % 16 / 2; }
inline long k_major_at(int k, int column) {
  const long block = k / K_MAJOR_BLOCK;
  return (block * PANEL_COLUMNS + k_major_line(column)) * K_MAJOR_BLOCK + k % K_MAJOR_BLOCK;
}

// In words of so many bits a value, those of the 64 columns side by side. Codes of 4 bits are the low halves of a
// word's four bytes, then the high ones.
inline long k_word_at(int k, int column, int bits) {
  const long word = k / (WORD_BITS / bits);
  return word * PANEL_COLUMNS + column;
}
inline int k_word_shift(int k, int bits) {
  return bits == 4 ? k % 4 * 8 + k / 4 % 2 * 4 : k % (WORD_BITS / bits) * bits;
}
