#pragma once
// Host matrices on their way into device memory.
#include <moecl/buffer.hpp>
#include <moecl/moe_weights.hpp>
#include <moecl/pack_weights.hpp>
#include <moecl/tensor_view.hpp>

namespace moecl {

/// Writes host matrices to the device through one staging buffer and converts them to their place there.
///
/// Async: writes are enqueued, so host matrices must live until `finish` or the destructor, which stop the host.
class WeightUpload {
 public:
  explicit WeightUpload(StreamView stream) : stream_(stream) {}
  /// Also after a failed load nothing reads the host matrices any more.
  ~WeightUpload();
  WeightUpload(const WeightUpload&) = delete;
  WeightUpload& operator=(const WeightUpload&) = delete;
  /// Errors: device_error  a write or conversion failed
  void finish();

  /// Into rows [first_column, first_column + matrix.rows) of an expert's N.
  void pack(const HostMatrix& matrix, const PackedWeights& packed, std::int64_t expert, std::int64_t first_column);
  /// Into a row-major matrix of the same shape, converting the type.
  void copy(const HostMatrix& matrix, TensorView to);

 private:
  TensorView stage(const HostMatrix& matrix);

  StreamView stream_;
  bool pending_ = false;
  Buffer staging_, iota_;
  std::vector<std::int32_t> iota_values_;
};

/// Errors: invalid_argument  the matrix is not [rows, columns] of f32, f16 or bf16; `what` names it
void expect_matrix(const HostMatrix& matrix, const char* what, std::int64_t rows, std::int64_t columns);

}  // namespace moecl
