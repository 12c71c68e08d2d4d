#include "host/weight_upload.hpp"

#include <moecl/gather_rows.hpp>

#include <numeric>
#include <utility>

#include "runtime/check.hpp"

namespace moecl {

void expect_matrix(const HostMatrix& matrix, const char* what, std::int64_t rows, std::int64_t columns) {
  require(matrix.present(), "{}: expected a matrix [{}, {}], got none", what, rows, columns);
  require(matrix.rows == rows && matrix.columns == columns, "{}: expected [{}, {}], got [{}, {}]", what, rows, columns,
          matrix.rows, matrix.columns);
  require(is_activation_dtype(matrix.dtype), "{}: expected f32, f16 or bf16, got {}", what, name(matrix.dtype));
  require(matrix.row_stride >= 0 && matrix.column_stride >= 0, "{}: negative stride", what);
}

WeightUpload::~WeightUpload() {
  try {
    finish();
  } catch (const Error&) {  // unwinding from the first failure, which is the one to report
  }
}

void WeightUpload::finish() {
  if (std::exchange(pending_, false)) stream_.finish();
}

TensorView WeightUpload::stage(const HostMatrix& matrix) {
  pending_ = true;
  const std::int64_t span = (matrix.rows - 1) * matrix.row_stride + (matrix.columns - 1) * matrix.column_stride + 1;
  const std::uint64_t bytes = static_cast<std::uint64_t>(span) * size_bytes(matrix.dtype);
  if (bytes > staging_.size_bytes()) staging_ = Buffer(*stream_.context, bytes);
  enqueue_write(stream_, staging_.view().slice(0, bytes), matrix.data, bytes);
  TensorView view(staging_.view(), matrix.dtype, {span});
  view.rank = 2;
  view.shape = {matrix.rows, matrix.columns};
  view.stride = {matrix.row_stride, matrix.column_stride};
  return view;
}

void WeightUpload::pack(const HostMatrix& matrix, const PackedWeights& packed, std::int64_t expert,
                        std::int64_t first_column) {
  pack_weights::enqueue(stream_, {stage(matrix), packed, expert, first_column});
}

void WeightUpload::copy(const HostMatrix& matrix, TensorView to) {
  require(matrix.column_stride == 1, "copy: a transposed matrix cannot be copied row by row");
  if (static_cast<std::int64_t>(iota_values_.size()) < matrix.rows) {
    stream_.finish();  // the old values may still be on their way
    iota_values_.resize(static_cast<std::size_t>(matrix.rows));
    std::iota(iota_values_.begin(), iota_values_.end(), 0);
    iota_ = Buffer(*stream_.context, iota_values_.size() * 4);
    enqueue_write(stream_, iota_.view(), iota_values_.data(), iota_.size_bytes());
  }
  gather_rows::Args args;
  args.x = stage(matrix);
  args.index = TensorView(iota_.view(), DType::i32, {matrix.rows});
  args.out = to;
  gather_rows::enqueue(stream_, args);
}

}  // namespace moecl
