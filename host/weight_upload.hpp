#pragma once
// Host matrices on their way into device memory.
#include <moecl/buffer.hpp>
#include <moecl/moe_weights.hpp>
#include <moecl/pack_weights.hpp>
#include <moecl/tensor_view.hpp>

namespace moecl {

/// Writes host matrices to the device through one staging buffer and converts them to their place there.
///
/// Async: writes are enqueued, so host matrices must live until the stream has finished.
class WeightUpload {
 public:
  explicit WeightUpload(StreamView stream) : stream_(stream) {}

  /// Into rows [first_column, first_column + matrix.rows) of an expert's N.
  void pack(const HostMatrix& matrix, const PackedWeights& packed, std::int64_t expert, std::int64_t first_column);
  /// Into a row-major matrix of the same shape, converting the type.
  void copy(const HostMatrix& matrix, TensorView to);

 private:
  TensorView stage(const HostMatrix& matrix);

  StreamView stream_;
  Buffer staging_, iota_;
  std::vector<std::int32_t> iota_values_;
};

/// Errors: invalid_argument  the matrix is not [rows, columns] of f32, f16 or bf16; `what` names it
void expect_matrix(const HostMatrix& matrix, const char* what, std::int64_t rows, std::int64_t columns);

}  // namespace moecl
