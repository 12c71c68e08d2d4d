#pragma once
// x W^T (+ bias) over one matrix that every token uses: the router's projection and the shared experts.
#include <moecl/dense_backend.hpp>
#include <moecl/grouped_gemm.hpp>

#include "host/layer/activated_product.hpp"
#include "host/layer/device_weights.hpp"
#include "host/layer/row_quant.hpp"

namespace moecl {

/// As grouped_gemm::Args has them.
struct SliceScratch {
  BufferView memory;
  bool concurrent = false;
};

class DenseProduct {
 public:
  DenseProduct() = default;
  /// Memory for `matrices` (all [*, K]) stacked to one W [N, K] stored as `dtype`, in the layout of the backend;
  /// quantized ones stay what they are, and are multiplied by grouped_gemm. CLBlast's products have no biases.
  DenseProduct(StreamView stream, const MatrixStack& matrices, bool biased, DType dtype,
               dense_backend::Backend backend);

  /// Errors: invalid_argument  matrices of the same shape that are stored otherwise; `what` names them
  void expect(const MatrixStack& matrices, const char* what) const;
  /// Writes matrices of that form where the old ones are. @param biases  One for each matrix, [1, its rows], or none
  void load(WeightUpload& upload, const MatrixStack& matrices, const std::vector<HostMatrix>& biases);

  /// @param a        Shape: [T, K]; codes only where `takes_codes`. @param out  Shape: [T, N] f32
  /// @param plan  Of passes of this form
  void enqueue(StreamView stream, const ProductRows& a, TensorView out, const SliceScratch& scratch,
               PlannedProduct& plan) const;
  /// The product and what follows, whose `x` is the product's. Shape: [T, N] f32
  void enqueue_activated(StreamView stream, const ProductRows& a, const AfterProduct& after,
                         const SliceScratch& scratch, FirstPlans& plans) const;
  /// The product that `enqueue` enqueues; only where `takes_codes`: CLBlast's is none of grouped_gemm.
  grouped_gemm::Args product(const ProductRows& a, TensorView out, const SliceScratch& scratch = {}) const;
  bool takes_codes() const noexcept { return packed_.present(); }
  /// How rows that only this product reads are best stored.
  DType row_dtype(const DeviceCaps& caps) const {
    return row_major_.present() ? DType::f32 : grouped_gemm::row_dtype(packed_.type(), dtype_, caps);
  }
  std::uint64_t weight_bytes() const noexcept { return memory_.size_bytes() + packed_.size_bytes(); }
  /// How the weights are stored, for reports.
  std::string format() const { return row_major_.present() ? name(row_major_.dtype) : packed_.format(); }

 private:
  DType dtype_ = DType::f32;
  DeviceWeights packed_;  ///< present: grouped_gemm with one expert
  Buffer memory_;
  TensorView row_major_;  ///< present: CLBlast
};

}  // namespace moecl
