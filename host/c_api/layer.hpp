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

/// @param stored  The dtype where the caller gives none
MoeLayerOptions layer_options(const moecl_layer_options& from, DType stored);
/// Options beside a desc, which alone gives the number of fused shared experts.
/// Errors: invalid_argument  the options give it
moecl_layer_options read_options_beside_desc(const moecl_layer_options* options);
/// The layer with its shared experts turned into `count` routed ones by fuse_shared_experts; 0: unchanged.
MoeLayerConfig fused(const MoeLayerConfig& config, std::int32_t count);
MoeShape shape_of(const moecl_layer_desc& desc);
moecl_residency_counts residency_counts(const MoeLayerReport& report, const ResidencyCounts& counts);
/// Views of the caller's weights, of all experts. The layer itself checks that none is missing.
MoeWeights weights_of(const moecl_layer_desc& desc);

/// Shape and weights of the layer. Shared experts become routed ones where the description asks for that.
FusedShared layer_of(const moecl_layer_desc& desc);

/// The only expert of a description. Errors: invalid_argument  desc.experts is not 1
ExpertMatrices expert_of(const moecl_layer_desc& desc);

/// A layer of a checkpoint; -1: the first that has experts.
struct StoredLayer {
  Checkpoint checkpoint;
  MoeLayerConfig config;

  /// @param router_spec  Path of a router spec; NULL: none
  StoredLayer(const char* model_dir, std::int32_t layer, const char* router_spec, std::int32_t fused_shared_experts);
  MoeWeights weights() const;
  /// The weights with those experts alone.
  MoeWeights weights(const std::vector<std::int64_t>& expert_ids) const;
  /// As `layer_options`; activations that the caller leaves open are those of the checkpoint's scheme.
  MoeLayerOptions options(const moecl_layer_options& given, const MoeWeights& weights) const;
};

}  // namespace moecl::c_api
