#pragma once
// The shared experts: one dense expert that all tokens use, optionally multiplied by a sigmoid gate.
#include <moecl/layer_options.hpp>
#include <moecl/moe_weights.hpp>
#include <moecl/workspace.hpp>

#include "host/layer/dense_product.hpp"
#include "host/layer/row_quant.hpp"

namespace moecl {

/// Plans of the shared experts' steps, for passes of one form.
struct SharedPlans : FirstPlans {
  PlannedProduct down, gate;
};

class SharedExperts {
 public:
  SharedExperts() = default;
  /// Allocates memory for shared experts of this shape and format.
  SharedExperts(StreamView stream, const MoeShape& shape, const MoeWeights& weights, const MoeLayerOptions& options,
                dense_backend::Backend backend);

  /// Errors: invalid_argument  the memory is for experts of another format
  void expect(const MoeWeights& weights) const;
  /// Overwrites the weights with experts of the same format.
  void load(WeightUpload& upload, const MoeWeights& weights);

  struct Layout {
    Layout(WorkspaceLayout& workspace, const SharedExperts& experts, std::int64_t tokens);
    TensorView gate_up, activated, output, gate_logits;
    RowQuant::Layout input, activated_input;
  };
  struct Output {
    TensorView rows;         ///< Shape: [T, H] f32
    TensorView gate_logits;  ///< Shape: [T, 1] f32; absent without a gate
  };
  /// Async: 3 kernels, 4 with a gate, and those of RowQuant twice. Absent output when the layer has no shared experts
  Output run(StreamView stream, TensorView x, const Layout& layout, BufferView workspace, const SliceScratch& scratch,
             SharedPlans& plans) const;
  /// Most tokens for which a pass may run them on a queue of their own, beside the routed experts; 0: never.
  std::int64_t tokens_beside() const noexcept { return tokens_beside_; }
  /// The same in words, and why; empty where there are none.
  const std::string& queue() const noexcept { return queue_; }

  std::string activations() const { return input_quant_.description(); }
  bool present() const noexcept { return shared_intermediate_ > 0; }
  std::uint64_t weight_bytes() const noexcept;
  /// How the weights are stored, for reports; empty where there are none.
  std::string format() const { return present() ? joined_formats(gate_up_.format(), down_.format()) : ""; }

 private:
  void choose_queue(const MoeLayerOptions& options, const DeviceCaps& caps);

  std::int64_t shared_intermediate_ = 0, hidden_ = 0;
  Activation activation_;
  DenseProduct gate_up_, down_, gate_;
  RowQuant input_quant_, activated_quant_;
  bool gated_ = false, down_bias_ = false;
  std::int64_t tokens_beside_ = 0;
  std::string queue_;
};

}  // namespace moecl
