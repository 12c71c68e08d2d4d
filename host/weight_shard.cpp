#include "host/weight_shard.hpp"

#include "runtime/check.hpp"

namespace moecl {
namespace {

const HostMatrix& plain_of(const WeightMatrix& matrix) {
  if (matrix.quantized())
    fail(ErrorCode::unsupported, "experts: a part of a quantized matrix [{}, {}] is not supported yet", matrix.rows(),
         matrix.columns());
  return matrix.plain;
}

void expect_within(Share part, std::int64_t extent, const char* what) {
  require(part.begin >= 0 && part.count >= 1 && part.begin + part.count <= extent,
          "experts: {} [{}, {}) of a matrix that has {}", what, part.begin, part.begin + part.count, extent);
}

HostMatrix moved(HostMatrix matrix, std::int64_t elements) {
  matrix.data =
      static_cast<const std::byte*>(matrix.data) + elements * static_cast<std::int64_t>(size_bytes(matrix.dtype));
  return matrix;
}

}  // namespace

WeightMatrix rows_of(const WeightMatrix& matrix, Share part) {
  const HostMatrix& whole = plain_of(matrix);
  expect_within(part, whole.rows, "rows");
  HostMatrix rows = moved(whole, part.begin * whole.row_stride);
  rows.rows = part.count;
  return rows;
}

WeightMatrix columns_of(const WeightMatrix& matrix, Share part) {
  const HostMatrix& whole = plain_of(matrix);
  expect_within(part, whole.columns, "columns");
  HostMatrix columns = moved(whole, part.begin * whole.column_stride);
  columns.columns = part.count;
  return columns;
}

ExpertMatrices intermediate_part(const ExpertMatrices& expert, std::int64_t intermediate, Share part) {
  require(
      expert.gate.rows() == intermediate && expert.up.rows() == intermediate && expert.down.columns() == intermediate,
      "experts: an intermediate size of {}, got gate, up and down of {}, {} and {}", intermediate, expert.gate.rows(),
      expert.up.rows(), expert.down.columns());
  return {rows_of(expert.gate, part), rows_of(expert.up, part), columns_of(expert.down, part)};
}

}  // namespace moecl
