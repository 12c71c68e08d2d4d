#pragma once
#include <moecl/model_config.hpp>
#include <moecl/moe_weights.hpp>

namespace moecl {

/// A layer whose shared experts are extra routed ones: num_fused_shared_experts of vLLM.
struct FusedShared {
  MoeShape shape;
  MoeWeights weights;
};

/// The shared experts as `count` experts that follow the E routed ones, each with an equal part of their intermediate
/// size, which is that of a routed expert. They then stand and travel as all experts do. Every token takes them: ids
/// and weights have K + count columns, of which the last say E, E + 1, ... with weight 1. So does the layer's router
/// (RouterSpec::fused_shared_experts); who routes himself may take another weight, where he scales the sum afterwards.
///
/// Errors: invalid_argument  there are no shared experts, they have a gate, or their parts are not as wide as a routed
///         expert; biases are of one kind alone; or weights multiply the input
FusedShared fuse_shared_experts(const MoeShape& shape, const MoeWeights& weights, std::int32_t count);

/// The same of a layer whose weights are read by its names, at once (find_layer_weights) or one by one (LayerBuilder):
/// the tensors of the shared experts keep their names.
MoeLayerConfig fuse_shared_experts(MoeLayerConfig config, std::int32_t count);

/// Expert E + index of a fused shape, of all shared ones. A view. Errors: invalid_argument  there are not so many, or
/// the matrices are not as wide as all of them
ExpertMatrices fused_shared_expert(const MoeShape& fused, const ExpertMatrices& shared, std::int64_t index);

}  // namespace moecl
