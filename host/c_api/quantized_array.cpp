#include "host/c_api/quantized_array.hpp"

#include "host/c_api/layer.hpp"
#include "runtime/quotient.hpp"

namespace moecl::c_api {
namespace {

static_assert(static_cast<int>(ScaleRounding::standard) == MOECL_ROUND_STANDARD &&
              static_cast<int>(ScaleRounding::ratio_up) == MOECL_ROUND_RATIO_UP &&
              static_cast<int>(ScaleRounding::amax_up) == MOECL_ROUND_AMAX_UP &&
              static_cast<int>(ScaleRounding::amax_even) == MOECL_ROUND_AMAX_EVEN &&
              static_cast<int>(ScaleRounding::amax_nearest) == MOECL_ROUND_AMAX_NEAREST);

CodeType code_type_of(std::int32_t number, const char* what) {
  switch (number) {
    case MOECL_I8:
      return CodeType::i8;
    case MOECL_U8:
      return CodeType::u8;
    case MOECL_I4:
      return CodeType::i4;
    case MOECL_U4:
      return CodeType::u4;
    case MOECL_F8_E4M3:
      return CodeType::f8_e4m3;
    case MOECL_F8_E5M2:
      return CodeType::f8_e5m2;
    case MOECL_F4_E2M1:
      return CodeType::f4_e2m1;
    case MOECL_F6_E2M3:
      return CodeType::f6_e2m3;
    case MOECL_F6_E3M2:
      return CodeType::f6_e3m2;
    default:
      fail(ErrorCode::invalid_argument, "{}: moecl_dtype {} is none of codes", what, number);
  }
}

/// The dtype in which scales are stored; e8m0 scales are u8.
DType scale_type_of(std::int32_t number, const char* what) {
  if (number == MOECL_E8M0) return DType::u8;
  if (number == MOECL_F8_E4M3) return DType::f8_e4m3;
  return dtype_of(number, what);
}

std::int64_t groups_of(std::int64_t elements, std::int64_t group) {
  return group == ScaleGroup::whole ? 1 : quotient_up(elements, group);
}

/// The codes [rows, columns] of one expert, which begin expert * expert_bytes bytes after those of expert 0.
/// `expert_bytes` 0: there is no gap between experts.
CodeMatrix codes_of(moecl_host_array array, moecl_code_layout layout, std::uint64_t expert_bytes, const char* what,
                    std::int64_t expert, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t most = std::int64_t{1} << 40;
  CodeMatrix codes;
  codes.type = code_type_of(array.dtype, what);
  codes.rows = rows;
  codes.columns = columns;
  const int width = bits(codes.type);
  codes.unit_codes = or_default(layout.unit_codes, width == 4 ? 2 : width == 6 ? 4 : 1);
  codes.unit_bytes = or_default(layout.unit_bytes, width == 6 ? 3 : 1);
  require(codes.unit_codes > 0 && codes.unit_bytes > 0 && codes.unit_codes * width <= codes.unit_bytes * 8,
          "{}: {} codes of {} bits do not fit a unit of {} bytes", what, codes.unit_codes, width, codes.unit_bytes);
  codes.packed_along_rows = layout.packed_along_rows != 0;
  codes.interleaved = layout.interleaved != 0;
  codes.first_row = layout.first_row;
  codes.first_column = layout.first_column;
  require(codes.first_row >= 0 && codes.first_column >= 0 && codes.first_row < most && codes.first_column < most,
          "{}: first_row {} or first_column {} is not in [0, {})", what, codes.first_row, codes.first_column, most);
  codes.column_stride = or_default<std::int64_t>(layout.column_stride, 1);
  const std::int64_t units = quotient_up(codes.first_column + columns, codes.unit_columns());
  codes.row_stride = or_default(layout.row_stride, units * codes.column_stride);
  require(codes.row_stride > 0 && codes.column_stride > 0 && codes.row_stride < most && codes.column_stride < most,
          "{}: strides of {} and {} units are not in [1, {})", what, codes.row_stride, codes.column_stride, most);
  const std::uint64_t stored =
      static_cast<std::uint64_t>(codes.end_unit()) * static_cast<std::uint64_t>(codes.unit_bytes);
  const std::uint64_t each = or_default(expert_bytes, stored);
  require(each < std::uint64_t{1} << 50, "{}: {} bytes from an expert to the next one", what, each);
  codes.data = static_cast<const std::byte*>(array.data) + static_cast<std::uint64_t>(expert) * each;
  return codes;
}

/// Keeps only the rows of `range`.
void take_rows(CodeMatrix& codes, RowRange range, const char* what) {
  require(range.step == 1 || codes.unit_rows() == 1, "{}: rows alternate, but a unit holds those of several", what);
  if (range.step == 1) {
    codes.first_row += range.first;
  } else {
    codes.data = codes.data + (codes.first_row + range.first) * codes.row_stride * codes.unit_bytes;
    codes.first_row = 0;
    codes.row_stride *= range.step;
  }
  codes.rows = range.count;
}

}  // namespace

WeightMatrix quantized_matrix(const moecl_quantized_array& array, const char* what, std::int64_t expert,
                              std::int64_t rows, std::int64_t columns, RowRange range) {
  WeightMatrix matrix;
  if (array.codes.data == nullptr) return matrix;
  require(array.reserved == 0, "{}: reserved: {} is not 0", what, array.reserved);
  require(array.scales.data != nullptr, "{}: there are codes, but no scales", what);
  require(array.group_rows >= -1 && array.group_columns >= 0, "{}: groups of {} x {}", what, array.group_rows,
          array.group_columns);
  matrix.group = {or_default<std::int64_t>(array.group_rows, 1),
                  or_default<std::int64_t>(array.group_columns, ScaleGroup::whole)};
  const std::int64_t groups_n = groups_of(rows, matrix.group.rows), groups_k = groups_of(columns, matrix.group.columns);
  // A part of the matrix must begin at the first row of a group, unless all rows share one group.
  const bool part = range.count != rows, shared = matrix.group.rows == ScaleGroup::whole;
  require(!part || shared || (range.step == 1 ? range.first % matrix.group.rows == 0 : matrix.group.rows == 1),
          "{}: groups of {} rows hold rows of gate and of up: give both apart", what, matrix.group.rows);

  const RowRange groups = shared ? RowRange{0, 1}
                          : range.step == 1
                              ? RowRange{range.first / matrix.group.rows, groups_of(range.count, matrix.group.rows)}
                              : range;
  matrix.codes = codes_of(array.codes, array.layout, array.expert_bytes, what, expert, rows, columns);
  take_rows(matrix.codes, range, what);
  const DType scale = scale_type_of(array.scales.dtype, what);
  const std::int64_t first_scale = (expert * groups_n + groups.first) * groups_k;
  matrix.scale = {
      static_cast<const std::byte*>(array.scales.data) + static_cast<std::size_t>(first_scale) * size_bytes(scale),
      scale, groups.count, groups_k};
  matrix.scale.row_stride *= groups.step;
  if (array.zero_points.data != nullptr) {
    matrix.zero =
        codes_of(array.zero_points, array.zero_layout, array.zero_expert_bytes, what, expert, groups_n, groups_k);
    take_rows(matrix.zero, groups, what);
    matrix.zero_add = array.zero_add;
  }
  if (array.group_index != nullptr) {
    const std::int32_t* const index = array.group_index + expert * columns;
    matrix.group_index.assign(index, index + columns);
  }
  if (array.global_scales != nullptr)  // gate and up have one each
    matrix.global_scale = array.global_scales[part ? 2 * expert + (range.first == 0 ? 0 : 1) : expert];
  return matrix;
}

float input_scale(const moecl_quantized_array& array, std::int64_t expert) {
  return array.input_scales == nullptr ? 0 : array.input_scales[expert];
}

OperandQuant operand_quant(const moecl_operand_quant& from, const char* what) {
  OperandQuant quant;
  if (from.dtype == MOECL_DEFAULT_DTYPE) return quant;
  require(from.reserved == 0, "{}: reserved: {} is not 0", what, from.reserved);
  quant.type = code_type_of(from.dtype, what);
  require(from.group_rows >= -1 && from.group_columns >= 0, "{}: groups of {} x {}", what, from.group_rows,
          from.group_columns);
  quant.group = {or_default<std::int64_t>(from.group_rows, 1),
                 or_default<std::int64_t>(from.group_columns, ScaleGroup::whole)};
  switch (from.scale_dtype) {
    case MOECL_DEFAULT_DTYPE:
    case MOECL_F32:
      break;
    case MOECL_E8M0:
      quant.scale = ScaleFormat::e8m0;
      break;
    case MOECL_F8_E4M3:
      quant.scale = ScaleFormat::e4m3;
      break;
    default:
      fail(ErrorCode::invalid_argument, "{}: scales of moecl_dtype {} are neither f32, e8m0 nor f8_e4m3", what,
           from.scale_dtype);
  }
  quant.zero_points = from.zero_points != 0;
  quant.static_scale = from.static_scale != 0;
  quant.rounding = enumerator(from.rounding, ScaleRounding::amax_nearest, what);
  quant.most_amax = or_default(from.max_amax, quant.most_amax);
  quant.least_scale = from.min_scale;
  return quant;
}

}  // namespace moecl::c_api
