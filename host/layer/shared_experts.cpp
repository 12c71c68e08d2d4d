#include "host/layer/shared_experts.hpp"

#include <limits>

#include "runtime/check.hpp"

namespace moecl {
SharedExperts::SharedExperts(StreamView stream, const MoeShape& shape, const MoeWeights& weights,
                             const MoeLayerOptions& options, dense_backend::Backend backend)
    : shared_intermediate_(shape.shared_intermediate),
      hidden_(shape.hidden),
      activation_(shape.activation),
      gated_(shape.shared_gate),
      down_bias_(weights.shared.down_bias.present()) {
  if (!present()) return;
  const ExpertMatrices& shared = weights.shared;
  const DType dtype = options.dtype;
  gate_up_ = DenseProduct(stream, first_matrices(shared), shape.shared_bias, dtype, backend);
  down_ = DenseProduct(stream, {shared.down}, down_bias_, dtype, backend);
  const auto quant = [&](const DenseProduct& product, float input_scale) {
    return RowQuant(stream, options.shared_activations, {input_scale}, product.takes_codes(),
                    product.row_dtype(stream.device->caps));
  };
  input_quant_ = quant(gate_up_, shared.gate_up_input_scale);
  activated_quant_ = quant(down_, shared.down_input_scale);
  if (gated_) gate_ = DenseProduct(stream, {weights.shared_gate}, false, dtype, backend);
  choose_queue(options, stream.device->caps);
}

void SharedExperts::choose_queue(const MoeLayerOptions& options, const DeviceCaps& caps) {
  // Products of more tokens fill the device alone (bench/results/2026-11-29-h200).
  constexpr std::int64_t most = 256, most_beside_codes = 4096;
  if (!options.shared_beside.value_or(caps.nv_compute_capability > 0)) {
    queue_ = fmt::format("the queue of the pass: {}",
                         options.shared_beside ? "the layer's options say so" : "the device is no NVIDIA GPU");
  } else if (options.shared_beside) {
    tokens_beside_ = std::numeric_limits<std::int64_t>::max();
    queue_ = "a queue of their own where one rank has the layer: the layer's options say so";
  } else {
    tokens_beside_ = options.activations.quantized() ? most_beside_codes : most;
    queue_ = fmt::format("a queue of their own where one rank has the layer, up to {} tokens: faster on an H200",
                         tokens_beside_);
  }
}

void SharedExperts::expect(const MoeWeights& weights) const {
  if (!present()) return;
  gate_up_.expect(first_matrices(weights.shared), "shared experts' gate and up");
  down_.expect({weights.shared.down}, "shared experts' down");
  require(weights.shared.down_bias.present() == down_bias_, "shared experts' down bias: there is {} to replace",
          down_bias_ ? "one" : "none");
  if (gated_) gate_.expect({weights.shared_gate}, "shared expert gate");
}

void SharedExperts::load(WeightUpload& upload, const MoeWeights& weights) {
  if (!present()) return;
  const ExpertMatrices& shared = weights.shared;
  const auto biases = [](std::vector<HostMatrix> given) {
    return given.front().present() ? given : std::vector<HostMatrix>{};
  };
  gate_up_.load(upload, first_matrices(shared), biases(first_biases(shared)));
  down_.load(upload, {shared.down}, biases({shared.down_bias}));
  input_quant_.load(upload, {shared.gate_up_input_scale});
  activated_quant_.load(upload, {shared.down_input_scale});
  if (gated_) gate_.load(upload, {weights.shared_gate}, {});
}

SharedExperts::Layout::Layout(WorkspaceLayout& workspace, const SharedExperts& experts, std::int64_t tokens)
    : gate_up(workspace.add(DType::f32, {tokens, experts.activation_.input_width(experts.shared_intermediate_)})),
      activated(workspace.add(DType::f32, {tokens, experts.shared_intermediate_})),
      output(workspace.add(DType::f32, {experts.present() ? tokens : 0, experts.hidden_})),
      gate_logits(workspace.add(DType::f32, {experts.gated_ ? tokens : 0, 1})),
      input(workspace, experts.input_quant_, tokens, experts.hidden_, false),
      activated_input(workspace, experts.activated_quant_, tokens, experts.shared_intermediate_, true) {}

SharedExperts::Output SharedExperts::run(StreamView stream, TensorView x, const Layout& layout, BufferView workspace,
                                         const SliceScratch& scratch, SharedPlans& plans) const {
  if (!present()) return {};
  const std::int64_t tokens = x.shape[0];
  const auto rows_at = [&](const TensorView& place) { return tensor_in(workspace, place).rows(0, tokens); };
  const TensorView gate_up = rows_at(layout.gate_up);
  const DType dtype = activated_quant_.present() ? DType::f32 : down_.row_dtype(stream.device->caps);
  const TensorView activated(rows_at(layout.activated).buffer, dtype, {tokens, shared_intermediate_});
  Output output;
  output.rows = rows_at(layout.output);
  const RowQuant::Step next = activated_quant_.step(activated, {}, layout.activated_input, workspace);
  AfterProduct after;
  after.activation.x = gate_up;
  after.activation.activation = activation_;
  after.activation.out = activated;
  after.codes = next.args;
  gate_up_.enqueue_activated(stream, input_quant_.run(stream, x, {}, layout.input, workspace, plans.input), after,
                             scratch, plans);
  down_.enqueue(stream, next.rows, output.rows, scratch, plans.down);
  if (gated_) {
    output.gate_logits = rows_at(layout.gate_logits);
    gate_.enqueue(stream, x, output.gate_logits, scratch, plans.gate);
  }
  return output;
}

std::uint64_t SharedExperts::weight_bytes() const noexcept {
  return gate_up_.weight_bytes() + down_.weight_bytes() + gate_.weight_bytes();
}

}  // namespace moecl
