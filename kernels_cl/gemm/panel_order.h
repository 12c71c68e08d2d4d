#pragma once
// Position of element (k, column) in panels whose layout is not [K][64]. Both C++ and OpenCL C include this file.

enum { PANEL_COLUMNS = 64, WORD_BITS = 32, K_MAJOR_BLOCK = 128 };

// k_major: blocks of K_MAJOR_BLOCK k, in which a line holds one column. Of 16 columns the even ones come first, so that
// a lane's fragment of a tensor-core operand has an even column and the odd column after it. Positions count values.
inline int k_major_line(int column) { return column / 16 * 16 + column % 2 * 8 + column % 16 / 2; }
inline long k_major_at(int k, int column) {
  const long block = k / K_MAJOR_BLOCK;
  return (block * PANEL_COLUMNS + k_major_line(column)) * K_MAJOR_BLOCK + k % K_MAJOR_BLOCK;
}

// k_words: a word holds neighbouring k of one column, `bits` bits for each value; the words of the 64 columns are side
// by side. Codes of 4 bits fill the low halves of a word's four bytes first, then the high halves.
inline long k_word_at(int k, int column, int bits) {
  const long word = k / (WORD_BITS / bits);
  return word * PANEL_COLUMNS + column;
}
inline int k_word_shift(int k, int bits) {
  return bits == 4 ? k % 4 * 8 + k / 4 % 2 * 4 : k % (WORD_BITS / bits) * bits;
}
