#include "host/layer/layer_parts.hpp"

#include <limits>

#include "host/layer/weight_upload.hpp"
#include "runtime/check.hpp"

namespace moecl {
namespace {

void expect_shape(const MoeShape& shape) {
  require(shape.hidden >= 1 && shape.intermediate >= 1 && shape.experts >= 1,
          "layer: hidden {}, intermediate {}, experts {} must be positive", shape.hidden, shape.intermediate,
          shape.experts);
  require(shape.router.top_k >= 1 && shape.router.top_k <= shape.experts, "layer: top_k {} is not in [1, {} experts]",
          shape.router.top_k, shape.experts);
  const std::string unroutable = gating_top_k::reject(shape.router, shape.experts);
  require(unroutable.empty(), "layer: {}", unroutable);
  require(shape.shared_intermediate >= 0, "layer: shared intermediate size {} is negative", shape.shared_intermediate);
  require(shape.shared_intermediate > 0 || !shape.shared_gate, "layer: a shared gate without shared experts");
}

void expect_bias(const HostMatrix& bias, const std::string& what, bool expected, std::int64_t columns) {
  require(bias.present() == expected, "{}: the shape says {}, the weights have {}", what, expected ? "one" : "none",
          bias.present() ? "one" : "none");
  if (expected) expect_matrix(bias, what.c_str(), 1, columns);
}

void expect_expert(const ExpertMatrices& expert, const std::string& what, std::int64_t hidden, std::int64_t inter,
                   bool gated, bool biased) {
  if (gated)
    expect_weights(expert.gate, (what + " gate").c_str(), inter, hidden);
  else
    require(!expert.gate.present(), "{} gate: given, but the activation is not gated", what);
  expect_weights(expert.up, (what + " up").c_str(), inter, hidden);
  expect_weights(expert.down, (what + " down").c_str(), hidden, inter);
  expect_bias(expert.gate_bias, what + " gate bias", biased && gated, inter);
  expect_bias(expert.up_bias, what + " up bias", biased, inter);
}

void expect_weights(const MoeShape& shape, const MoeWeights& weights, std::int64_t local_experts) {
  expect_matrix(weights.router, "router", shape.experts, shape.hidden);
  expect_bias(weights.router_bias, "router bias", shape.router_bias, shape.experts);
  expect_bias(weights.selection_bias, "selection bias", shape.selection_bias, shape.experts);
  require(weights.experts.size() == static_cast<std::size_t>(local_experts),
          "experts: the shape says {}, the weights have {}", local_experts, weights.experts.size());
  for (std::size_t i = 0; i < weights.experts.size(); ++i) {
    const ExpertMatrices& expert = weights.experts[i];
    expect_expert(expert, fmt::format("expert {}", i), shape.hidden, shape.intermediate, shape.activation.gated,
                  shape.expert_bias);
    // Of experts in parts the first part has the bias, so all experts here have one or none.
    const bool down_bias = shape.expert_bias && weights.experts.front().down_bias.present();
    expect_bias(expert.down_bias, fmt::format("expert {} down bias", i), down_bias, shape.hidden);
  }
  if (shape.shared_intermediate > 0) {
    expect_expert(weights.shared, "shared experts", shape.hidden, shape.shared_intermediate, shape.activation.gated,
                  shape.shared_bias);
    const bool down_bias = shape.shared_bias && weights.shared.down_bias.present();  // as of experts
    expect_bias(weights.shared.down_bias, "shared experts down bias", down_bias, shape.hidden);
  }
  if (shape.shared_gate) expect_matrix(weights.shared_gate, "shared expert gate", 1, shape.hidden);
}

bool rows_are_contiguous(const ExpertMatrices& network) {
  return network.gate.plain.column_stride == 1 && network.up.plain.column_stride == 1 &&
         network.down.plain.column_stride == 1;
}

/// Who computes dense products, and the experts' in the batched layout.
struct Backends {
  dense_backend::Choice dense, batched;

  Backends(const DeviceCaps& caps, const MoeShape& shape, const MoeWeights& weights, const MoeLayerOptions& options)
      : dense(dense_backend::select(caps, options.dtype)), batched(dense_backend::select_batched(caps, options.dtype)) {
    if (options.dense_backend) {
      require(*options.dense_backend != dense_backend::Backend::clblast || options.dtype == DType::f32,
              "layer: CLBlast needs dtype f32, got {}", name(options.dtype));
      dense = batched = {*options.dense_backend, "asked for by the caller"};
    }
    if (shape.router_bias || shape.shared_bias)
      need_packed(dense, options, "CLBlast adds no bias of the router or the shared experts");
    if (!rows_are_contiguous(weights.shared)) need_packed(dense, options, "the shared experts are stored transposed");
    if (options.quantize.quantized() || (!weights.experts.empty() && weights.experts.front().up.quantized()))
      batched = {dense_backend::Backend::grouped_gemm, "the only one for quantized weights"};
    if (shape.expert_bias) need_packed(batched, options, "CLBlast adds no biases of experts");
    if (!weights.experts.empty() && !rows_are_contiguous(weights.experts.front()))
      need_packed(batched, options, "the experts are stored transposed");
  }

 private:
  static void need_packed(dense_backend::Choice& choice, const MoeLayerOptions& options, const char* reason) {
    if (choice.backend == dense_backend::Backend::grouped_gemm) return;
    if (options.dense_backend) fail(ErrorCode::unsupported, "layer: CLBlast was asked for, but {}", reason);
    choice = {dense_backend::Backend::grouped_gemm, reason};
  }
};

/// Before anything is uploaded.
const MoeShape& checked(const MoeShape& shape, const MoeWeights& weights, std::int64_t local_experts,
                        const MoeLayerOptions& options) {
  expect_shape(shape);
  expect_weights(shape, weights, local_experts);
  require(is_activation_dtype(options.dtype), "layer: dtype {} is not f32, f16 or bf16", name(options.dtype));
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();  // kernels count rows in 32 bits
  for (const std::int64_t rows : {options.rows_per_expert, options.chunk_tokens})
    require(rows >= 0 && rows <= most, "layer: rows_per_expert {} or chunk_tokens {} is not in [0, {}]",
            options.rows_per_expert, options.chunk_tokens, most);
  return shape;
}

}  // namespace

LayerParts::LayerParts(StreamView stream, const MoeShape& layer_shape, const MoeWeights& weights,
                       std::int64_t local_experts, const MoeLayerOptions& layer_options, const LoadProgress& progress)
    : device(stream.device),
      shape(checked(layer_shape, weights, local_experts, layer_options)),
      options(layer_options),
      local_experts_(local_experts) {
  const Backends backends(stream.device->caps, shape, weights, options);
  for (const std::string& warning : options.warnings) stream.context->log(LogLevel::warning, warning);
  if (!backends.dense.problem.empty()) stream.context->log(LogLevel::warning, backends.dense.problem);
  router = DenseProduct(stream, {weights.router}, shape.router_bias, options.dtype, backends.dense.backend);
  experts = Experts(stream, shape, weights.experts, options, backends.batched.backend);
  shared = SharedExperts(stream, shape, weights, options, backends.dense.backend);
  if (shape.selection_bias) {
    selection_bias_memory = Buffer(*stream.context, static_cast<std::uint64_t>(shape.experts) * 4);
    selection_bias = TensorView(selection_bias_memory.view(), DType::f32, {shape.experts});
  }
  write(stream, weights, progress);
  report.dense_backend = dense_backend::name(backends.dense.backend);
  report.dense_reason = backends.dense.reason;
  if (options.layout == ExpertLayout::batched) {
    report.batched_backend = dense_backend::name(backends.batched.backend);
    report.batched_reason = backends.batched.reason;
  }
  report.expert_format = experts.format();
  report.shared_format = shared.format();
  report.activations = experts.activations();
  if (shared.present() && shared.activations() != report.activations)
    report.activations += "; of shared experts " + shared.activations();
  report.weight_segments = experts.segments();
  report.weight_bytes =
      experts.weight_bytes() + router.weight_bytes() + shared.weight_bytes() + selection_bias_memory.size_bytes();
}

QuantizationError LayerParts::load(WeightUpload& upload, const MoeWeights& weights, const LoadProgress& progress) {
  router.load(upload, {weights.router},
              shape.router_bias ? std::vector{weights.router_bias} : std::vector<HostMatrix>{});
  const QuantizationError error = experts.load(upload, weights.experts, progress);
  shared.load(upload, weights);
  if (shape.selection_bias) upload.write(numbers_of({weights.selection_bias}).data(), selection_bias);
  return error;
}

void LayerParts::write(StreamView stream, const MoeWeights& weights, const LoadProgress& progress) {
  whole_ = false;
  WeightUpload upload(stream);
  report.quantization = load(upload, weights, progress);
  upload.finish();
  report.read_bytes = upload.read_bytes();
  whole_ = true;
}

void LayerParts::expect_whole() const {
  require(whole_, "layer: replacing its weights failed half way; replace them again before the next pass");
}

void LayerParts::replace(StreamView stream, const MoeWeights& weights, const LoadProgress& progress) {
  checked(shape, weights, local_experts_, options);
  router.expect({weights.router}, "router");
  experts.expect(weights.experts);
  shared.expect(weights);
  {
    WeightUpload check(stream, WeightUpload::Purpose::check);
    load(check, weights, {});
  }  // its memory goes before that of the writing comes
  write(stream, weights, progress);
}

}  // namespace moecl
