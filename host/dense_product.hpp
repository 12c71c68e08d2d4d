#pragma once
// x W^T (+ bias) over one matrix that every token uses: the router's projection and the shared experts.
#include <moecl/dense_backend.hpp>

#include "host/device_weights.hpp"
#include "host/row_quant.hpp"

namespace moecl {

class DenseProduct {
 public:
  DenseProduct() = default;
  /// Stacks `matrices` (all [*, K]) to one W [N, K] stored as `dtype`, in the layout of the backend; quantized ones
  /// stay what they are, and are multiplied by grouped_gemm. `biases`: one for each matrix, [1, its rows], or none;
  /// CLBlast's products have none.
  DenseProduct(StreamView stream, WeightUpload& upload, const MatrixStack& matrices,
               const std::vector<HostMatrix>& biases, DType dtype, dense_backend::Backend backend);

  /// @param a    Shape: [T, K]; codes only where `takes_codes`. @param out  Shape: [T, N] f32
  void enqueue(StreamView stream, const ProductRows& a, TensorView out) const;
  bool takes_codes() const noexcept { return packed_.present(); }
  std::uint64_t weight_bytes() const noexcept { return memory_.size_bytes() + packed_.size_bytes(); }
  /// How the weights are stored, for reports.
  std::string format() const { return row_major_.present() ? name(row_major_.dtype) : packed_.format(); }

 private:
  DeviceWeights packed_;  ///< present: grouped_gemm with one expert
  Buffer memory_;
  TensorView row_major_;  ///< present: CLBlast
};

}  // namespace moecl
