#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace moecl {

/// A matrix in a checkpoint: a whole tensor, or a part of one that holds several matrices.
struct TensorPart {
  std::string name;
  std::int64_t rows = 0, columns = 0;    ///< N and K of the matrix
  std::int64_t experts = 0, expert = 0;  ///< experts > 0: the tensor is stacked, and this is one expert's
  std::int64_t stored_rows = 0;          ///< rows of one expert in the tensor
  std::int64_t first_row = 0, step = 1;  ///< row n of the matrix is stored row first_row + n * step
  bool transposed = false;               ///< stored [columns, stored_rows]
  bool flat = false;                     ///< stacked: the expert dimension is merged with the next one

  std::vector<std::int64_t> stored_shape() const {
    std::vector<std::int64_t> shape = {stored_rows, columns};
    if (transposed) std::swap(shape[0], shape[1]);
    if (experts > 0 && flat) shape[0] *= experts;
    if (experts > 0 && !flat) shape.insert(shape.begin(), experts);
    return shape;
  }
  /// A tensor that is one matrix.
  static TensorPart whole(std::string name, std::int64_t rows, std::int64_t columns) {
    TensorPart part;
    part.name = std::move(name);
    part.rows = part.stored_rows = rows;
    part.columns = columns;
    return part;
  }
  /// The part for the bias vector beside this matrix: the same rows, one column.
  TensorPart bias(std::string bias_name) const {
    TensorPart part = *this;
    part.name = std::move(bias_name);
    part.columns = 1;
    part.transposed = false;
    return part;
  }
};

}  // namespace moecl
