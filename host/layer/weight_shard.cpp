#include "host/layer/weight_shard.hpp"

#include <numeric>

#include "runtime/check.hpp"
#include "runtime/quotient.hpp"

namespace moecl {
namespace {

void expect_within(Share part, std::int64_t extent, const char* what) {
  require(part.begin >= 0 && part.count >= 1 && part.begin + part.count <= extent,
          "experts: {} [{}, {}) of a matrix that has {}", what, part.begin, part.begin + part.count, extent);
}

HostMatrix moved(HostMatrix matrix, std::int64_t elements) {
  matrix.data = matrix.data + elements * static_cast<std::int64_t>(size_bytes(matrix.dtype));
  return matrix;
}

/// The codes from (row, column) on. Where codes share a unit, the rest of the unit is skipped by first_row or
/// first_column.
CodeMatrix moved(CodeMatrix codes, std::int64_t row, std::int64_t column) {
  std::int64_t& packed = codes.packed_along_rows ? row : column;
  std::int64_t& skipped = codes.packed_along_rows ? codes.first_row : codes.first_column;
  packed += skipped;
  skipped = packed % codes.unit_codes;
  packed /= codes.unit_codes;
  codes.data = codes.data + (row * codes.row_stride + column * codes.column_stride) * codes.unit_bytes;
  return codes;
}

/// The groups of `size` elements that a part of an extent covers. Errors: invalid_argument  the part splits a group
Share groups_of(Share part, std::int64_t extent, std::int64_t size, const char* what) {
  if (size == ScaleGroup::whole) return {0, 1};
  const std::int64_t end = part.begin + part.count;
  require(part.begin % size == 0 && (end % size == 0 || end == extent),
          "experts: {} [{}, {}) of {} split a group of {} that shares a scale", what, part.begin, end, extent, size);
  return {part.begin / size, quotient_up(part.count, size)};
}

}  // namespace

WeightMatrix rows_of(const WeightMatrix& matrix, Share part) {
  expect_within(part, matrix.rows(), "rows");
  WeightMatrix rows = matrix;
  if (!matrix.quantized()) {
    rows.plain = moved(matrix.plain, part.begin * matrix.plain.row_stride);
    rows.plain.rows = part.count;
    return rows;
  }
  const Share groups = groups_of(part, matrix.rows(), matrix.group.rows, "rows");
  rows.codes = moved(matrix.codes, part.begin, 0);
  rows.codes.rows = part.count;
  rows.scale = moved(matrix.scale, groups.begin * matrix.scale.row_stride);
  rows.scale.rows = groups.count;
  if (matrix.zero.present()) {
    rows.zero = moved(matrix.zero, groups.begin, 0);
    rows.zero.rows = groups.count;
  }
  return rows;
}

WeightMatrix columns_of(const WeightMatrix& matrix, Share part) {
  expect_within(part, matrix.columns(), "columns");
  WeightMatrix columns = matrix;
  if (!matrix.quantized()) {
    columns.plain = moved(matrix.plain, part.begin * matrix.plain.column_stride);
    columns.plain.columns = part.count;
    return columns;
  }
  columns.codes = moved(matrix.codes, 0, part.begin);
  columns.codes.columns = part.count;
  if (!matrix.group_index.empty()) {  // any column may be in any group: all scales stay
    const auto first = matrix.group_index.begin() + part.begin;
    columns.group_index.assign(first, first + part.count);
    return columns;
  }
  const Share groups = groups_of(part, matrix.columns(), matrix.group.columns, "columns");
  columns.scale = moved(matrix.scale, groups.begin * matrix.scale.column_stride);
  columns.scale.columns = groups.count;
  if (matrix.zero.present()) {
    columns.zero = moved(matrix.zero, 0, groups.begin);
    columns.zero.columns = groups.count;
  }
  return columns;
}

std::int64_t intermediate_unit(const ExpertMatrices& expert) {
  std::int64_t unit = 1;
  const auto include = [&unit](std::int64_t group) {
    if (group != ScaleGroup::whole) unit = std::lcm(unit, group);
  };
  for (const WeightMatrix* matrix : {&expert.gate, &expert.up})
    if (matrix->quantized()) include(matrix->group.rows);
  if (expert.down.quantized() && expert.down.group_index.empty()) include(expert.down.group.columns);
  return unit;
}

ExpertMatrices intermediate_part(const ExpertMatrices& expert, std::int64_t intermediate, Share part) {
  const bool gated = expert.gate.present();
  require((!gated || expert.gate.rows() == intermediate) && expert.up.rows() == intermediate &&
              expert.down.columns() == intermediate,
          "experts: an intermediate size of {}, got gate, up and down of {}, {} and {}", intermediate,
          expert.gate.rows(), expert.up.rows(), expert.down.columns());
  ExpertMatrices here;
  here.gate_up_input_scale = expert.gate_up_input_scale;
  here.down_input_scale = expert.down_input_scale;
  if (gated) here.gate = rows_of(expert.gate, part);
  here.up = rows_of(expert.up, part);
  here.down = columns_of(expert.down, part);
  if (expert.gate_bias.present()) here.gate_bias = columns_of(expert.gate_bias, part).plain;
  if (expert.up_bias.present()) here.up_bias = columns_of(expert.up_bias, part).plain;
  if (part.begin == 0) here.down_bias = expert.down_bias;  // so the sum of all parts has it once
  return here;
}

}  // namespace moecl
