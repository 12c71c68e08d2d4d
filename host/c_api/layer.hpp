#pragma once
// Layers as the C interface describes them.
#include <moecl/checkpoint.hpp>
#include <moecl/fused_shared.hpp>
#include <moecl/layer_weights.hpp>
#include <moecl/model_config.hpp>

#include "host/c_api/c_api.hpp"

namespace moecl::c_api {

/// The C++ enumerator of the same number. Errors: invalid_argument  not in [0, last]
template <class Enum>
Enum enumerator(std::int32_t value, Enum last, const char* what) {
  require(value >= 0 && value <= static_cast<std::int32_t>(last), "{}: {} is not in [0, {}]", what, value,
          static_cast<std::int32_t>(last));
  return static_cast<Enum>(value);
}

/// @param weights  of one expert at least. @param stored  The type where the caller says none
MoeLayerOptions layer_options(const moecl_layer_options& from, DType stored);
/// Of a layer whose description says how many shared experts are fused. Errors: invalid_argument  the options say it
moecl_layer_options read_options_beside_desc(const moecl_layer_options* options);
/// `fuse_shared_experts`, of any; 0: the layer as it is.
MoeLayerConfig fused(const MoeLayerConfig& config, std::int32_t count);
MoeShape shape_of(const moecl_layer_desc& desc);
moecl_residency_counts residency_counts(const MoeLayerReport& report, const ResidencyCounts& counts);
/// Views of the caller's weights, of all experts; whether all are there is the layer's own check.
MoeWeights weights_of(const moecl_layer_desc& desc);

/// Both, with the shared experts as routed ones where the description wants that.
FusedShared layer_of(const moecl_layer_desc& desc);

/// The one expert of a description. Errors: invalid_argument  it has more
ExpertMatrices expert_of(const moecl_layer_desc& desc);

/// A layer of a checkpoint; -1: the first that has experts.
struct StoredLayer {
  Checkpoint checkpoint;
  MoeLayerConfig config;

  /// @param router_spec  NULL: none
  StoredLayer(const char* model_dir, std::int32_t layer, const char* router_spec, std::int32_t fused_shared_experts);
  MoeWeights weights() const;
  /// Of those experts alone.
  MoeWeights weights(const std::vector<std::int64_t>& expert_ids) const;
  /// As `layer_options`, with the activations of the checkpoint's scheme.
  MoeLayerOptions options(const moecl_layer_options& given, const MoeWeights& weights) const;
};

}  // namespace moecl::c_api
