#pragma once
// Experts without products: zero, copy and constant experts. Their ids follow those of the routed experts.
#include <moecl/buffer.hpp>
#include <moecl/moe_weights.hpp>
#include <moecl/tensor_view.hpp>
#include <moecl/workspace.hpp>

#include "host/layer/planned.hpp"
#include "host/layer/weight_upload.hpp"

namespace moecl {

/// Their rows never travel: the rank that has a token adds their result.
class SpecialExperts {
 public:
  SpecialExperts() = default;
  /// Allocates memory for the vectors of the constant experts, stored as `dtype`.
  SpecialExperts(StreamView stream, const MoeShape& shape, DType dtype);
  void load(WeightUpload& upload, const MoeWeights& weights);

  /// Whether any of them may give a result other than 0.
  bool give_rows() const noexcept { return copies_ + constants_ > 0; }

  struct Layout {
    Layout(WorkspaceLayout& workspace, const SpecialExperts& experts, std::int64_t tokens, std::int32_t top_k);
    TensorView owners, slot_rows, rows, sum;  ///< absent unless give_rows()
  };
  struct Plans {
    Planned<LaunchPlan> constants, sum;
  };

  /// @param x  Shape: [T, L]. @param ids  Shape: [T, K] i32, routed experts first. @param weights  Shape: [T, K] f32
  /// @return  Shape: [T, L] f32 in the workspace: the weighted sum of their results; absent unless give_rows()
  /// Async: up to three kernels
  TensorView run(StreamView stream, TensorView x, TensorView ids, TensorView weights, const Layout& layout,
                 BufferView workspace, Plans& plans) const;

  std::uint64_t weight_bytes() const noexcept { return memory_.size_bytes(); }

 private:
  std::int32_t routed_ = 0, zeros_ = 0, copies_ = 0, constants_ = 0;
  std::int64_t width_ = 0;
  Buffer memory_;
  TensorView alpha_1_, alpha_2_, v_;  ///< of the constant experts. Shape: [C, L]
};

}  // namespace moecl
