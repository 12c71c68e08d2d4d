#include <moecl/layer_weights.hpp>

#include <algorithm>

#include "host/c_api/layer.hpp"

namespace moecl::c_api {
namespace {

static_assert(static_cast<int>(ScoreFunction::softmax) == MOECL_SCORE_SOFTMAX &&
              static_cast<int>(ScoreFunction::sigmoid) == MOECL_SCORE_SIGMOID &&
              static_cast<int>(ScoreFunction::none) == MOECL_SCORE_NONE &&
              static_cast<int>(ScoreFunction::sqrtsoftplus) == MOECL_SCORE_SQRTSOFTPLUS &&
              static_cast<int>(ScoreFunction::sparse_mixer) == MOECL_SCORE_SPARSE_MIXER);
static_assert(static_cast<int>(ScoreOrder::before_top_k) == MOECL_SCORE_BEFORE_TOP_K &&
              static_cast<int>(ScoreOrder::after_top_k) == MOECL_SCORE_AFTER_TOP_K);
static_assert(static_cast<int>(GroupScore::max) == MOECL_GROUP_MAX &&
              static_cast<int>(GroupScore::sum_of_top_2) == MOECL_GROUP_SUM_OF_TOP_2);
static_assert(static_cast<int>(ActivationFunction::silu) == MOECL_SILU &&
              static_cast<int>(ActivationFunction::gelu) == MOECL_GELU &&
              static_cast<int>(ActivationFunction::gelu_tanh) == MOECL_GELU_TANH &&
              static_cast<int>(ActivationFunction::swigluoai) == MOECL_SWIGLUOAI &&
              static_cast<int>(ActivationFunction::relu2) == MOECL_RELU2);
static_assert(static_cast<int>(ExpertLayout::standard) == MOECL_LAYOUT_STANDARD &&
              static_cast<int>(ExpertLayout::batched) == MOECL_LAYOUT_BATCHED);

/// Rows [first_row, first_row + rows) of an array with that many columns; absent when the array is.
HostMatrix matrix(moecl_host_array array, const char* what, std::int64_t first_row, std::int64_t rows,
                  std::int64_t columns) {
  if (array.data == nullptr) return {};
  const DType dtype = dtype_of(array.dtype, what);
  const auto skipped = static_cast<std::size_t>(first_row * columns) * size_bytes(dtype);
  return {static_cast<const std::byte*>(array.data) + skipped, dtype, rows, columns};
}

}  // namespace

MoeLayerOptions layer_options(const moecl_layer_options& from, const MoeWeights& weights) {
  MoeLayerOptions options;
  options.dtype = from.dtype == MOECL_DEFAULT_DTYPE ? stored_dtype(weights) : dtype_of(from.dtype, "options.dtype");
  options.layout = enumerator(from.expert_layout, ExpertLayout::batched, "options.expert_layout");
  options.rows_per_expert = from.rows_per_expert;
  options.chunk_tokens = from.chunk_tokens;
  options.one_launch = from.several_launches == 0;
  return options;
}

MoeShape shape_of(const moecl_layer_desc& desc) {
  MoeShape shape;
  shape.hidden = desc.hidden;
  shape.intermediate = desc.intermediate;
  shape.experts = desc.experts;
  shape.router.top_k = desc.top_k;
  shape.router.score = enumerator(desc.score, ScoreFunction::sparse_mixer, "score");
  shape.router.order = enumerator(desc.score_order, ScoreOrder::after_top_k, "score_order");
  shape.router.groups = or_default(desc.groups, 1);
  shape.router.kept_groups = or_default(desc.kept_groups, shape.router.groups);
  shape.router.group_score = enumerator(desc.group_score, GroupScore::sum_of_top_2, "group_score");
  shape.router.renormalise = desc.renormalise != 0;
  shape.router.renormalise_epsilon = desc.renormalise_epsilon;
  shape.router.renormalise_minimum = desc.renormalise_minimum;
  shape.router.mixer_jitter = desc.mixer_jitter;
  shape.router.scaling_factor = or_default(desc.scaling_factor, shape.router.scaling_factor);
  shape.router.weight_on_input = desc.weight_on_input != 0;
  shape.activation.function = enumerator(desc.activation, ActivationFunction::relu2, "activation");
  shape.activation.alpha = or_default(desc.activation_alpha, shape.activation.alpha);
  shape.activation.limit = or_default(desc.activation_limit, shape.activation.limit);
  shape.shared_intermediate = desc.shared_intermediate;
  shape.shared_gate = desc.shared_expert_gate.data != nullptr;
  shape.selection_bias = desc.selection_bias.data != nullptr;
  shape.router_bias = desc.router_bias.data != nullptr;
  shape.expert_bias =
      desc.gate_up_bias.data != nullptr || desc.gate_bias.data != nullptr || desc.down_bias.data != nullptr;
  return shape;
}

MoeWeights weights_of(const moecl_layer_desc& desc) {
  const std::int64_t hidden = desc.hidden, inter = desc.intermediate, shared = desc.shared_intermediate;
  const std::int64_t experts = desc.experts;
  require(hidden >= 1 && inter >= 1 && experts >= 1 && shared >= 0,
          "layer: hidden {}, intermediate {} and experts {} must be positive, shared_intermediate {} not negative",
          hidden, inter, experts, shared);
  const double bytes =
      8.0 * static_cast<double>(hidden) * static_cast<double>(std::max(inter, shared)) * static_cast<double>(experts);
  require(bytes < 9e18, "layer: hidden {}, intermediate {}, shared_intermediate {} and experts {} overflow 64 bits",
          hidden, inter, shared, experts);
  require(desc.gate_up.data == nullptr || (desc.gate.data == nullptr && desc.up.data == nullptr),
          "weights: give gate_up, or gate and up, not both");

  require(desc.gate_up_bias.data == nullptr || (desc.gate_bias.data == nullptr && desc.up_bias.data == nullptr),
          "weights: give gate_up_bias, or gate_bias and up_bias, not both");
  const bool fused_bias = desc.gate_up_bias.data != nullptr;

  MoeWeights weights;
  weights.router = matrix(desc.router, "router", 0, experts, hidden);
  weights.router_bias = matrix(desc.router_bias, "router_bias", 0, 1, experts);
  weights.selection_bias = matrix(desc.selection_bias, "selection_bias", 0, 1, experts);
  for (std::int64_t e = 0; e < experts; ++e) {
    ExpertMatrices& expert = weights.experts.emplace_back();
    if (desc.gate_up.data != nullptr) {
      expert.gate = matrix(desc.gate_up, "gate_up", 2 * e * inter, inter, hidden);
      expert.up = matrix(desc.gate_up, "gate_up", (2 * e + 1) * inter, inter, hidden);
    } else {
      expert.gate = matrix(desc.gate, "gate", e * inter, inter, hidden);
      expert.up = matrix(desc.up, "up", e * inter, inter, hidden);
    }
    expert.down = matrix(desc.down, "down", e * hidden, hidden, inter);
    expert.gate_bias = fused_bias ? matrix(desc.gate_up_bias, "gate_up_bias", 2 * e, 1, inter)
                                  : matrix(desc.gate_bias, "gate_bias", e, 1, inter);
    expert.up_bias = fused_bias ? matrix(desc.gate_up_bias, "gate_up_bias", 2 * e + 1, 1, inter)
                                : matrix(desc.up_bias, "up_bias", e, 1, inter);
    expert.down_bias = matrix(desc.down_bias, "down_bias", e, 1, hidden);
  }
  weights.shared.gate = matrix(desc.shared_gate, "shared_gate", 0, shared, hidden);
  weights.shared.up = matrix(desc.shared_up, "shared_up", 0, shared, hidden);
  weights.shared.down = matrix(desc.shared_down, "shared_down", 0, hidden, shared);
  weights.shared_gate = matrix(desc.shared_expert_gate, "shared_expert_gate", 0, 1, hidden);
  require(
      shared > 0 || !(weights.shared.gate.present() || weights.shared.up.present() || weights.shared.down.present()),
      "weights: shared experts are given, shared_intermediate is 0");
  return weights;
}

StoredLayer::StoredLayer(const char* model_dir, std::int32_t layer)
    : checkpoint(Checkpoint::open(&required(model_dir, "model_dir"))),
      config(checkpoint.config().layer(layer == -1 ? checkpoint.config().first_moe_layer() : layer)) {}

MoeWeights StoredLayer::weights() const { return find_layer_weights(checkpoint, config); }

MoeWeights StoredLayer::weights(const std::vector<std::int64_t>& expert_ids) const {
  return find_layer_weights(checkpoint, config, expert_ids);
}

MoeLayerOptions StoredLayer::options(const moecl_layer_options& given, const MoeWeights& weights) const {
  MoeLayerOptions options = layer_options(given, weights);
  const MoeLayerOptions stored = stored_options(config, weights);
  options.warnings = stored.warnings;
  if (given.plain_activations == 0) {
    options.activations = stored.activations;
    options.shared_activations = stored.shared_activations;
  }
  return options;
}

}  // namespace moecl::c_api
