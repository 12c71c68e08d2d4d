#pragma once
#include <cstdint>
#include <string>

namespace moecl {

/// A matrix in a checkpoint: a whole tensor, or a part of one that holds several matrices.
struct TensorPart {
  std::string name;
  std::int64_t rows = 0, columns = 0;    ///< N and K of the matrix
  std::int64_t experts = 0, expert = 0;  ///< experts > 0: the tensor is stacked, and this is one expert's
  std::int64_t stored_rows = 0;          ///< of one expert, in the tensor
  std::int64_t first_row = 0, step = 1;  ///< row n of the matrix is row first_row + n * step of those
  bool transposed = false;               ///< stored [columns, stored_rows]
};

}  // namespace moecl
