#pragma once
// Dense product x W^T (+ bias) with one matrix for all tokens: the router's projection and the shared experts.
#include <moecl/dense_backend.hpp>
#include <moecl/grouped_gemm.hpp>

#include "host/layer/activated_product.hpp"
#include "host/layer/device_weights.hpp"
#include "host/layer/row_quant.hpp"

namespace moecl {

/// Memory for K-slices (split-K): `scratch` and `concurrent` of grouped_gemm::Args.
struct SliceScratch {
  BufferView memory;
  bool concurrent = false;
};

class DenseProduct {
 public:
  DenseProduct() = default;
  /// Allocates memory for `matrices` (all [*, K]), stacked to one W [N, K] of `dtype` in the layout of the backend.
  /// Quantized matrices keep their codes, and grouped_gemm multiplies them. CLBlast's products have no biases.
  DenseProduct(StreamView stream, const MatrixStack& matrices, bool biased, DType dtype,
               dense_backend::Backend backend);

  /// Errors: invalid_argument  the format of `matrices` is not the one that the memory is for; `what` names them
  void expect(const MatrixStack& matrices, const char* what) const;
  /// Overwrites the weights with `matrices` of the same format. @param biases  One per matrix, [1, its rows], or none
  void load(WeightUpload& upload, const MatrixStack& matrices, const std::vector<HostMatrix>& biases);

  /// @param a  Shape: [T, K]; codes only if `takes_codes`. @param out  Shape: [T, N] f32
  /// @param plan  Kept for passes of this form
  void enqueue(StreamView stream, const ProductRows& a, TensorView out, const SliceScratch& scratch,
               PlannedProduct& plan) const;
  /// The product and the steps of `after`. The product writes its rows to after.activation.x. Shape: [T, N] f32
  void enqueue_activated(StreamView stream, const ProductRows& a, const AfterProduct& after,
                         const SliceScratch& scratch, FirstPlans& plans) const;
  /// The arguments that `enqueue` gives to grouped_gemm. Only if `takes_codes`: else CLBlast multiplies.
  grouped_gemm::Args product(const ProductRows& a, TensorView out, const SliceScratch& scratch = {}) const;
  bool takes_codes() const noexcept { return packed_.present(); }
  /// The best dtype for rows that only this product reads.
  DType row_dtype(const DeviceCaps& caps) const {
    return row_major_.present() ? DType::f32 : grouped_gemm::row_dtype(packed_.type(), dtype_, caps);
  }
  std::uint64_t weight_bytes() const noexcept { return memory_.size_bytes() + packed_.size_bytes(); }
  /// How the weights are stored, for reports.
  std::string format() const { return row_major_.present() ? name(row_major_.dtype) : packed_.format(); }

 private:
  DType dtype_ = DType::f32;
  DeviceWeights packed_;  ///< present: grouped_gemm multiplies, with one expert
  Buffer memory_;
  TensorView row_major_;  ///< present: CLBlast multiplies
};

}  // namespace moecl
