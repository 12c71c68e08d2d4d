#pragma once
// Experts without products: those whose ids follow the routed ones'.
#include <moecl/buffer.hpp>
#include <moecl/moe_weights.hpp>
#include <moecl/tensor_view.hpp>
#include <moecl/workspace.hpp>

#include "host/layer/planned.hpp"
#include "host/layer/weight_upload.hpp"

namespace moecl {

/// Their rows never travel: whoever has a token adds what they give it.
class SpecialExperts {
 public:
  SpecialExperts() = default;
  /// Memory for the vectors of constant experts, stored as `dtype`.
  SpecialExperts(StreamView stream, const MoeShape& shape, DType dtype);
  void load(WeightUpload& upload, const MoeWeights& weights);

  /// Whether any gives more than 0.
  bool give_rows() const noexcept { return copies_ + constants_ > 0; }

  struct Layout {
    Layout(WorkspaceLayout& workspace, const SpecialExperts& experts, std::int64_t tokens, std::int32_t top_k);
    TensorView owners, slot_rows, rows, sum;  ///< absent unless they give rows
  };
  struct Plans {
    Planned<LaunchPlan> constants, sum;
  };

  /// @param x    Shape: [T, L]. @param ids  Shape: [T, K] i32, routed experts first. @param weights  Shape: [T, K] f32
  /// @return  Shape: [T, L] f32 in the workspace: the weighted sum of what they give; absent where they give nothing
  /// Async: up to three kernels
  TensorView run(StreamView stream, TensorView x, TensorView ids, TensorView weights, const Layout& layout,
                 BufferView workspace, Plans& plans) const;

  std::uint64_t weight_bytes() const noexcept { return memory_.size_bytes(); }

 private:
  std::int32_t routed_ = 0, zeros_ = 0, copies_ = 0, constants_ = 0;
  std::int64_t width_ = 0;
  Buffer memory_;
  TensorView alpha_1_, alpha_2_, v_;  ///< of constant experts. Shape: [C, L]
};

}  // namespace moecl
