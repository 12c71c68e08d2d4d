#pragma once
// x W^T over one matrix that every token uses: the router's projection and the shared experts.
#include <moecl/dense_backend.hpp>

#include "host/weight_upload.hpp"

namespace moecl {

class DenseProduct {
 public:
  DenseProduct() = default;
  /// Stacks `matrices` (all [*, K]) to one W [N, K] stored as `dtype`, in the layout of the backend.
  DenseProduct(StreamView stream, WeightUpload& upload, const std::vector<HostMatrix>& matrices, DType dtype,
               dense_backend::Backend backend);

  /// @param a    Shape: [T, K]. @param out  Shape: [T, N] f32
  void enqueue(StreamView stream, TensorView a, TensorView out) const;
  std::uint64_t weight_bytes() const noexcept { return memory_.size_bytes(); }

 private:
  Buffer memory_;
  PackedWeights packed_;  ///< present: grouped_gemm with one expert
  TensorView row_major_;  ///< present: CLBlast
};

}  // namespace moecl
