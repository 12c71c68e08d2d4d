#include <algorithm>
#include <limits>

#include "host/c_api/layer.hpp"
#include "host/c_api/quantized_array.hpp"

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
              static_cast<int>(ActivationFunction::relu2) == MOECL_RELU2 &&
              static_cast<int>(ActivationFunction::relu) == MOECL_RELU &&
              static_cast<int>(ActivationFunction::fast_gelu) == MOECL_FAST_GELU);
static_assert(static_cast<int>(ExpertLayout::standard) == MOECL_LAYOUT_STANDARD &&
              static_cast<int>(ExpertLayout::batched) == MOECL_LAYOUT_BATCHED);
static_assert(static_cast<int>(PanelLayout::n_major) == 0 &&
              static_cast<int>(PanelLayout::k_words) == MOECL_PANELS_K_WORDS - MOECL_PANELS_N_MAJOR);

/// Rows [first_row, first_row + rows) of an array with `columns` columns; absent when the array is absent.
HostMatrix matrix(moecl_host_array array, const char* what, std::int64_t first_row, std::int64_t rows,
                  std::int64_t columns) {
  if (array.data == nullptr) return {};
  const DType dtype = dtype_of(array.dtype, what);
  const auto skipped = static_cast<std::size_t>(first_row * columns) * size_bytes(dtype);
  return {static_cast<const std::byte*>(array.data) + skipped, dtype, rows, columns};
}

/// The caller's fields that may hold one product's matrices, and their name in messages.
struct NamedArray {
  moecl_host_array plain;
  const moecl_quantized_array& quantized;
  const char* name;

  bool present() const { return plain.data != nullptr || quantized.codes.data != nullptr; }
};

/// Rows of one expert's matrix [rows, columns].
WeightMatrix weight_matrix(const NamedArray& array, std::int64_t expert, std::int64_t rows, std::int64_t columns,
                           RowRange range) {
  require(array.plain.data == nullptr || array.quantized.codes.data == nullptr,
          "weights: give {} plain or quantized, not both", array.name);
  if (array.plain.data == nullptr) return quantized_matrix(array.quantized, array.name, expert, rows, columns, range);
  HostMatrix plain = matrix(array.plain, array.name, expert * rows + range.first, range.count, columns);
  plain.row_stride *= range.step;
  return plain;
}

WeightMatrix weight_matrix(const NamedArray& array, std::int64_t expert, std::int64_t rows, std::int64_t columns) {
  return weight_matrix(array, expert, rows, columns, {0, rows});
}

}  // namespace

MoeLayerOptions layer_options(const moecl_layer_options& from, DType stored) {
  MoeLayerOptions options;
  options.dtype = from.dtype == MOECL_DEFAULT_DTYPE ? stored : dtype_of(from.dtype, "options.dtype");
  if (from.router_dtype != MOECL_DEFAULT_DTYPE)
    options.router_dtype = dtype_of(from.router_dtype, "options.router_dtype");
  if (const auto panels = enumerator(from.panel_layout, MOECL_PANELS_K_WORDS, "options.panel_layout");
      panels != MOECL_PANELS_AUTO)
    options.panel_layout = static_cast<PanelLayout>(panels - MOECL_PANELS_N_MAJOR);
  options.layout = enumerator(from.expert_layout, ExpertLayout::batched, "options.expert_layout");
  options.rows_per_expert = from.rows_per_expert;
  options.chunk_tokens = from.chunk_tokens;
  options.one_launch = from.several_launches == 0;
  if (const auto beside = enumerator(from.shared_beside, MOECL_OFF, "options.shared_beside"); beside != MOECL_DEFAULT)
    options.shared_beside = beside == MOECL_ON;
  options.activations = operand_quant(from.activations, "options.activations");
  options.shared_activations = operand_quant(from.shared_activations, "options.shared_activations");
  options.budget.bytes = from.memory_budget_bytes;
  options.budget.percent = from.memory_budget_percent;
  require(from.residency >= MOECL_RESIDENCY_LEAST_STALE && from.residency <= MOECL_RESIDENCY_STATIC,
          "options.residency: {} is not in [0, {}]", from.residency, static_cast<int>(MOECL_RESIDENCY_STATIC));
  options.budget.policy = from.residency == MOECL_RESIDENCY_LRU      ? ResidencyPolicy::lru
                          : from.residency == MOECL_RESIDENCY_STATIC ? ResidencyPolicy::fixed
                                                                     : ResidencyPolicy::least_stale;
  require(from.resident_loads_count >= 0 && (from.resident_loads_count == 0 || from.resident_loads != nullptr),
          "options.resident_loads: {} numbers at {}", from.resident_loads_count,
          from.resident_loads == nullptr ? "NULL" : "an address");
  options.budget.missed = enumerator(from.missed_experts, MissedExperts::in_place, "options.missed_experts");
  options.budget.loads.assign(from.resident_loads, from.resident_loads + from.resident_loads_count);
  if (from.quantize != nullptr) {
    const std::optional<QuantScheme> scheme = scheme_named(from.quantize);
    require(scheme.has_value(), "options.quantize: \"{}\" is no scheme", from.quantize);
    options.quantize = scheme->weights;
    if (!options.activations.quantized()) options.activations = scheme->activations;
  }
  return options;
}

moecl_layer_options read_options_beside_desc(const moecl_layer_options* options) {
  const auto given = read_options(options, "options");
  require(given.num_fused_shared_experts == 0,
          "options.num_fused_shared_experts: {}; of a layer that is described desc says it",
          given.num_fused_shared_experts);
  return given;
}

MoeLayerConfig fused(const MoeLayerConfig& config, std::int32_t count) {
  return count == 0 ? config : fuse_shared_experts(config, count);
}

moecl_residency_counts residency_counts(const MoeLayerReport& report, const ResidencyCounts& counts) {
  moecl_residency_counts told = {};
  told.size_bytes = sizeof(told);
  told.prefetched = counts.prefetched, told.prefetched_hits = counts.prefetched_hits;
  told.resident = report.resident_experts, told.budget_bytes = report.resident_bytes;
  told.hits = counts.hits, told.misses = counts.misses, told.fetched_bytes = counts.fetched_bytes;
  return told;
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
  shape.activation.function = enumerator(desc.activation, ActivationFunction::fast_gelu, "activation");
  shape.activation.gated = desc.ungated == 0;
  if (desc.activation_no_bias != 0) shape.activation.bias = 0;
  shape.activation.alpha = or_default(desc.activation_alpha, shape.activation.alpha);
  shape.activation.limit = or_default(desc.activation_limit, shape.activation.limit);
  shape.shared_intermediate = desc.shared_intermediate;
  shape.expert_hidden = desc.expert_hidden;
  shape.zero_experts = desc.zero_experts;
  shape.copy_experts = desc.copy_experts;
  shape.const_experts = desc.const_experts;
  shape.vocabulary = desc.vocabulary;
  shape.shared_gate = desc.shared_expert_gate.data != nullptr;
  shape.selection_bias = desc.selection_bias.data != nullptr;
  shape.router_bias = desc.router_bias.data != nullptr;
  shape.shared_bias = desc.shared_gate_bias.data != nullptr || desc.shared_up_bias.data != nullptr ||
                      desc.shared_down_bias.data != nullptr;
  shape.expert_bias =
      desc.gate_up_bias.data != nullptr || desc.gate_bias.data != nullptr || desc.down_bias.data != nullptr;
  return shape;
}

MoeWeights weights_of(const moecl_layer_desc& desc) {
  const std::int64_t hidden = desc.hidden, inter = desc.intermediate, shared = desc.shared_intermediate;
  const std::int64_t experts = desc.experts, width = or_default(desc.expert_hidden, hidden);
  require(hidden >= 1 && inter >= 1 && experts >= 1 && shared >= 0,
          "layer: hidden {}, intermediate {} and experts {} must be positive, shared_intermediate {} not negative",
          hidden, inter, experts, shared);
  const double bytes = 8.0 * static_cast<double>(std::max(hidden, desc.expert_hidden)) *
                       static_cast<double>(std::max(inter, shared)) * static_cast<double>(experts);
  require(bytes < 9e18, "layer: hidden {}, intermediate {}, shared_intermediate {} and experts {} overflow 64 bits",
          hidden, inter, shared, experts);
  for (const std::int64_t more : {width, desc.vocabulary, std::int64_t{desc.zero_experts},
                                  std::int64_t{desc.copy_experts}, std::int64_t{desc.const_experts}})
    require(more >= 0 && more <= std::numeric_limits<std::int32_t>::max() / 4,
            "layer: expert_hidden {}, vocabulary {}, or {} zero, {} copy or {} constant experts", width,
            desc.vocabulary, desc.zero_experts, desc.copy_experts, desc.const_experts);
  require(desc.reserved == 0, "layer: reserved: {} is not 0", desc.reserved);
  const std::int64_t choices = experts + desc.zero_experts + desc.copy_experts + desc.const_experts;
  const NamedArray gate_up{desc.gate_up, desc.quantized_gate_up, "gate_up"},
      gate{desc.gate, desc.quantized_gate, "gate"}, up{desc.up, desc.quantized_up, "up"},
      down{desc.down, desc.quantized_down, "down"};
  const NamedArray shared_gate{desc.shared_gate, desc.quantized_shared_gate, "shared_gate"},
      shared_up{desc.shared_up, desc.quantized_shared_up, "shared_up"},
      shared_down{desc.shared_down, desc.quantized_shared_down, "shared_down"};
  require(!gate_up.present() || (!gate.present() && !up.present()), "weights: give gate_up, or gate and up, not both");
  require(desc.gate_up_bias.data == nullptr || (desc.gate_bias.data == nullptr && desc.up_bias.data == nullptr),
          "weights: give gate_up_bias, or gate_bias and up_bias, not both");
  const bool fused_bias = desc.gate_up_bias.data != nullptr, alternate = desc.gate_up_interleaved != 0;
  const RowRange gate_rows = alternate ? RowRange{0, inter, 2} : RowRange{0, inter},
                 up_rows = alternate ? RowRange{1, inter, 2} : RowRange{inter, inter};
  // The biases of gate or up: a row vector, whose column stride is the step of their rows.
  const auto half_of_bias = [&](std::int64_t expert, RowRange rows) {
    HostMatrix bias = matrix(desc.gate_up_bias, "gate_up_bias", 2 * expert * inter + rows.first, 1, 1);
    bias.columns = bias.present() ? rows.count : 0;
    bias.column_stride = rows.step;
    return bias;
  };

  MoeWeights weights;
  weights.router = matrix(desc.router, "router", 0, choices, hidden);
  weights.router_bias = matrix(desc.router_bias, "router_bias", 0, 1, choices);
  weights.selection_bias = matrix(desc.selection_bias, "selection_bias", 0, 1, choices);
  weights.const_alpha_1 = matrix(desc.const_alpha_1, "const_alpha_1", 0, desc.const_experts, width);
  weights.const_alpha_2 = matrix(desc.const_alpha_2, "const_alpha_2", 0, desc.const_experts, width);
  weights.const_v = matrix(desc.const_v, "const_v", 0, desc.const_experts, width);
  if (desc.expert_table.data != nullptr)
    weights.expert_table = {static_cast<const std::byte*>(desc.expert_table.data),
                            to_dtype(desc.expert_table.dtype, "expert_table").value_or(DType::u8), desc.vocabulary,
                            desc.top_k};
  for (std::int64_t e = 0; e < experts; ++e) {
    ExpertMatrices& expert = weights.experts.emplace_back();
    if (gate_up.present()) {
      expert.gate = weight_matrix(gate_up, e, 2 * inter, width, gate_rows);
      expert.up = weight_matrix(gate_up, e, 2 * inter, width, up_rows);
      expert.gate_up_input_scale = input_scale(gate_up.quantized, e);
    } else {
      expert.gate = weight_matrix(gate, e, inter, width);
      expert.up = weight_matrix(up, e, inter, width);
      expert.gate_up_input_scale = input_scale(up.quantized, e);
    }
    expert.down = weight_matrix(down, e, width, inter);
    expert.down_input_scale = input_scale(down.quantized, e);
    expert.gate_bias = fused_bias ? half_of_bias(e, gate_rows) : matrix(desc.gate_bias, "gate_bias", e, 1, inter);
    expert.up_bias = fused_bias ? half_of_bias(e, up_rows) : matrix(desc.up_bias, "up_bias", e, 1, inter);
    expert.down_bias = matrix(desc.down_bias, "down_bias", e, 1, width);
  }
  require(shared > 0 || !(shared_gate.present() || shared_up.present() || shared_down.present()),
          "weights: shared experts are given, shared_intermediate is 0");
  weights.shared_gate = matrix(desc.shared_expert_gate, "shared_expert_gate", 0, 1, hidden);
  if (shared == 0) return weights;
  ExpertMatrices& both = weights.shared;
  both.gate = weight_matrix(shared_gate, 0, shared, hidden);
  both.up = weight_matrix(shared_up, 0, shared, hidden);
  both.down = weight_matrix(shared_down, 0, hidden, shared);
  both.gate_up_input_scale = input_scale(shared_up.quantized, 0);
  both.down_input_scale = input_scale(shared_down.quantized, 0);
  both.gate_bias = matrix(desc.shared_gate_bias, "shared_gate_bias", 0, 1, shared);
  both.up_bias = matrix(desc.shared_up_bias, "shared_up_bias", 0, 1, shared);
  both.down_bias = matrix(desc.shared_down_bias, "shared_down_bias", 0, 1, hidden);
  return weights;
}

FusedShared layer_of(const moecl_layer_desc& desc) {
  FusedShared layer{shape_of(desc), weights_of(desc)};
  if (desc.num_fused_shared_experts == 0) return layer;
  return fuse_shared_experts(layer.shape, layer.weights, desc.num_fused_shared_experts);
}

ExpertMatrices expert_of(const moecl_layer_desc& desc) {
  require(desc.experts == 1, "desc.experts: expected 1, got {}", desc.experts);
  return weights_of(desc).experts.front();
}

StoredLayer::StoredLayer(const char* model_dir, std::int32_t layer, const char* router_spec,
                         std::int32_t fused_shared_experts)
    : checkpoint(Checkpoint::open(&required(model_dir, "model_dir"), text_or_empty(router_spec))),
      config(fused(checkpoint.config().layer(layer == -1 ? checkpoint.config().first_moe_layer() : layer),
                   fused_shared_experts)) {}

MoeWeights StoredLayer::weights() const { return find_layer_weights(checkpoint, config); }

MoeWeights StoredLayer::weights(const std::vector<std::int64_t>& expert_ids) const {
  return find_layer_weights(checkpoint, config, expert_ids);
}

MoeLayerOptions StoredLayer::options(const moecl_layer_options& given, const MoeWeights& weights) const {
  const MoeLayerOptions stored = stored_options(config, weights);
  MoeLayerOptions options = layer_options(given, stored.dtype);
  options.warnings = stored.warnings;
  if (given.plain_activations == 0) {
    if (!options.activations.quantized()) options.activations = stored.activations;
    if (!options.shared_activations.quantized()) options.shared_activations = stored.shared_activations;
  }
  return options;
}

}  // namespace moecl::c_api
