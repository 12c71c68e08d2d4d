#include "host/shared_experts.hpp"

#include "host/scratch.hpp"

namespace moecl {
SharedExperts::SharedExperts(StreamView stream, WeightUpload& upload, const MoeShape& shape, const MoeWeights& weights,
                             DType dtype, dense_backend::Backend backend)
    : shared_intermediate_(shape.shared_intermediate),
      hidden_(shape.hidden),
      activation_(shape.activation),
      gated_(shape.shared_gate) {
  if (!present()) return;
  const ExpertMatrices& shared = weights.shared;
  using Biases = std::vector<HostMatrix>;
  gate_up_ = DenseProduct(stream, upload, {shared.gate, shared.up},
                          shape.shared_bias ? Biases{shared.gate_bias, shared.up_bias} : Biases{}, dtype, backend);
  down_ = DenseProduct(stream, upload, {shared.down}, shape.shared_bias ? Biases{shared.down_bias} : Biases{}, dtype,
                       backend);
  if (gated_) gate_ = DenseProduct(stream, upload, {weights.shared_gate}, {}, dtype, backend);
}

SharedExperts::Layout::Layout(WorkspaceLayout& workspace, const MoeShape& shape, std::int64_t tokens) {
  const std::int64_t inter = shape.shared_intermediate;
  gate_up = workspace.add(f32_bytes(tokens, 2 * inter));
  activated = workspace.add(f32_bytes(tokens, inter));
  output = workspace.add(f32_bytes(inter > 0 ? tokens : 0, shape.hidden));
  gate_logits = workspace.add(f32_bytes(shape.shared_gate ? tokens : 0, 1));
}

SharedExperts::Output SharedExperts::run(StreamView stream, TensorView x, const Layout& layout,
                                         BufferView workspace) const {
  if (!present()) return {};
  const std::int64_t tokens = x.shape[0];
  const TensorView gate_up = f32_rows(workspace, layout.gate_up, tokens, 2 * shared_intermediate_);
  const TensorView activated = f32_rows(workspace, layout.activated, tokens, shared_intermediate_);
  Output output;
  output.rows = f32_rows(workspace, layout.output, tokens, hidden_);
  gate_up_.enqueue(stream, x, gate_up);
  gated_activation::Args activation;
  activation.x = gate_up;
  activation.activation = activation_;
  activation.out = activated;
  gated_activation::enqueue(stream, activation);
  down_.enqueue(stream, activated, output.rows);
  if (gated_) {
    output.gate_logits = f32_rows(workspace, layout.gate_logits, tokens, 1);
    gate_.enqueue(stream, x, output.gate_logits);
  }
  return output;
}

std::uint64_t SharedExperts::weight_bytes() const noexcept {
  return gate_up_.weight_bytes() + down_.weight_bytes() + gate_.weight_bytes();
}

}  // namespace moecl
