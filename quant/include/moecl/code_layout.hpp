#pragma once
#include <moecl/code_type.hpp>

#include <cstdint>

namespace moecl {

/// Where the codes of a matrix [N, K] stand in memory: one or several to a unit, which is a little-endian number.
///
/// Element (n, k) stands at position p = i % unit_codes, `bits(type)` each from the lowest, of the unit i / unit_codes
/// along the packed axis, where i is n or k.
struct CodeLayout {
  CodeType type = CodeType::i8;
  std::int64_t rows = 0, columns = 0;              ///< N and K, in elements
  std::int64_t row_stride = 0, column_stride = 1;  ///< from a unit to the next one, in units
  std::int64_t first_row = 0, first_column = 0;    ///< elements before this part of the stored matrix
  std::int32_t unit_bytes = 1, unit_codes = 1;     ///< 4 and 8: int4 in words; 1 and 2: in bytes; 3 and 4: fp6
  bool packed_along_rows = false;                  ///< a unit's codes are neighbours in n instead of in k
  bool interleaved = false;  ///< the element at i % 8 stands at position [0, 4, 1, 5, 2, 6, 3, 7]. Source: AWQ

  /// Codes of a unit along n and along k; one of them is 1.
  constexpr std::int32_t unit_rows() const noexcept { return packed_along_rows ? unit_codes : 1; }
  constexpr std::int32_t unit_columns() const noexcept { return packed_along_rows ? 1 : unit_codes; }
  /// Units, counted from the stored matrix' first, that hold this part's first element, and one past its last.
  constexpr std::int64_t first_unit() const noexcept {
    return first_row / unit_rows() * row_stride + first_column / unit_columns() * column_stride;
  }
  constexpr std::int64_t end_unit() const noexcept {
    return (first_row + rows - 1) / unit_rows() * row_stride +
           (first_column + columns - 1) / unit_columns() * column_stride + 1;
  }
};

}  // namespace moecl
