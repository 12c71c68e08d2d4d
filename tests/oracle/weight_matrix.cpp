#include "tests/oracle/weight_matrix.hpp"

#include <cmath>
#include <limits>

namespace moecl::test {
namespace {

/// Decodes a sign, `exponent` bits and `mantissa` bits as IEEE 754 does, except infinities and NaN.
double minifloat(unsigned code, int exponent, int mantissa, int bias) {
  const double sign = (code >> (exponent + mantissa)) & 1U ? -1 : 1;
  const int e = static_cast<int>((code >> mantissa) & ((1U << exponent) - 1));
  const double fraction = static_cast<double>(code & ((1U << mantissa) - 1)) / (1 << mantissa);
  return e == 0 ? sign * std::ldexp(fraction, 1 - bias) : sign * std::ldexp(1 + fraction, e - bias);
}

double decode(CodeType type, unsigned code) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  switch (type) {
    case CodeType::i8:
      return static_cast<std::int8_t>(code);
    case CodeType::i4:
      return code < 8 ? static_cast<int>(code) : static_cast<int>(code) - 16;
    case CodeType::f8_e4m3:
      return (code & 0x7fU) == 0x7f ? nan : minifloat(code, 4, 3, 7);
    case CodeType::f8_e5m2:
      return (code & 0x7fU) >= 0x7c ? nan : minifloat(code, 5, 2, 15);
    case CodeType::f6_e2m3:
      return minifloat(code, 2, 3, 1);
    case CodeType::f6_e3m2:
      return minifloat(code, 3, 2, 3);
    case CodeType::f4_e2m1:
      return minifloat(code, 2, 1, 1);
    default:
      return code;  // unsigned integers
  }
}

double code_element(const CodeMatrix& codes, std::int64_t n, std::int64_t k) {
  constexpr std::int64_t awq_position[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  n += codes.first_row;
  k += codes.first_column;
  const std::int64_t along = codes.packed_along_rows ? n : k, unit = along / codes.unit_codes;
  std::int64_t position = along % codes.unit_codes;
  if (codes.interleaved) position = awq_position[position];
  const std::int64_t at = codes.packed_along_rows ? unit * codes.row_stride + k * codes.column_stride
                                                  : n * codes.row_stride + unit * codes.column_stride;
  std::uint32_t word = 0;
  (codes.data + at * codes.unit_bytes).read(&word, static_cast<std::uint64_t>(codes.unit_bytes));
  const int width = bits(codes.type);
  return decode(codes.type, word >> (position * width) & ((1U << width) - 1));
}

}  // namespace

double matrix_element(const HostMatrix& matrix, std::int64_t row, std::int64_t column) {
  const auto width = static_cast<std::int64_t>(size_bytes(matrix.dtype));
  std::uint32_t code = 0;
  (matrix.data + (row * matrix.row_stride + column * matrix.column_stride) * width)
      .read(&code, size_bytes(matrix.dtype));
  switch (matrix.dtype) {
    case DType::bf16:
      return minifloat(code, 8, 7, 127);
    case DType::f16:
      return minifloat(code, 5, 10, 15);
    case DType::f8_e4m3:
      return decode(CodeType::f8_e4m3, code);
    case DType::u8:
      return std::ldexp(1.0, static_cast<int>(code) - 127);  // e8m0
    default:
      return minifloat(code, 8, 23, 127);
  }
}

WeightMatrix in_memory(WeightMatrix matrix) {
  matrix.plain = matrix.plain.in_memory();
  matrix.scale = matrix.scale.in_memory();
  for (CodeMatrix* codes : {&matrix.codes, &matrix.zero})
    if (codes->present())
      codes->data = codes->data.in_memory(static_cast<std::uint64_t>(codes->end_unit() * codes->unit_bytes));
  return matrix;
}

double weight_element(const WeightMatrix& matrix, std::int64_t row, std::int64_t column) {
  if (!matrix.quantized()) return matrix_element(matrix.plain, row, column);
  const std::int64_t group_row = matrix.group.rows == ScaleGroup::whole ? 0 : row / matrix.group.rows;
  std::int64_t group_column = matrix.group.columns == ScaleGroup::whole ? 0 : column / matrix.group.columns;
  if (!matrix.group_index.empty()) group_column = matrix.group_index[static_cast<std::size_t>(column)];
  const double zero = matrix.zero.present() ? code_element(matrix.zero, group_row, group_column) + matrix.zero_add
                                            : implicit_zero(matrix.codes.type);
  return (code_element(matrix.codes, row, column) - zero) * matrix_element(matrix.scale, group_row, group_column) *
         static_cast<double>(matrix.global_scale);
}

}  // namespace moecl::test
