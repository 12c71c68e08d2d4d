#pragma once
#include <moecl/code_type.hpp>

#include <cstdint>

namespace moecl {

/// Memory layout of the codes of a matrix [N, K]. A unit, which is a little-endian number, holds one or several codes.
///
/// Let i be the element's index along the packed axis, n or k. Element (n, k) is in unit i / unit_codes along that
/// axis, at position p = i % unit_codes. Positions are counted from the lowest bits and have `bits(type)` bits each.
struct CodeLayout {
  CodeType type = CodeType::i8;
  std::int64_t rows = 0, columns = 0;              ///< N and K, in elements
  std::int64_t row_stride = 0, column_stride = 1;  ///< from a unit to the next one, in units
  std::int64_t first_row = 0, first_column = 0;    ///< elements before this part of the stored matrix
  std::int32_t unit_bytes = 1, unit_codes = 1;     ///< 4 and 8: int4 in words; 1 and 2: int4 in bytes; 3 and 4: fp6
  bool packed_along_rows = false;                  ///< codes of a unit are neighbours along n instead of k
  bool interleaved = false;  ///< element i % 8 of a unit is at position [0, 4, 1, 5, 2, 6, 3, 7]. Source: AWQ

  /// Number of codes of a unit along n and along k; one of them is 1.
  constexpr std::int32_t unit_rows() const noexcept { return packed_along_rows ? unit_codes : 1; }
  constexpr std::int32_t unit_columns() const noexcept { return packed_along_rows ? 1 : unit_codes; }
  /// Index of the unit with this part's first element, and one past the unit with its last, in the stored matrix.
  constexpr std::int64_t first_unit() const noexcept {
    return first_row / unit_rows() * row_stride + first_column / unit_columns() * column_stride;
  }
  constexpr std::int64_t end_unit() const noexcept {
    return (first_row + rows - 1) / unit_rows() * row_stride +
           (first_column + columns - 1) / unit_columns() * column_stride + 1;
  }
};

}  // namespace moecl
