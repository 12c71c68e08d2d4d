#pragma once
#include <moecl/model_config.hpp>
#include <moecl/moe_weights.hpp>

namespace moecl {

/// A layer whose shared experts are extra routed ones: num_fused_shared_experts of vLLM.
struct FusedShared {
  MoeShape shape;
  MoeWeights weights;
};

/// Turns the shared experts into `count` experts that follow the E routed ones. Each gets an equal part of the shared
/// intermediate size; the part must be as wide as a routed expert. They are then placed and exchanged like all experts.
/// Every token takes them: ids and weights have K + count columns, and the last `count` hold the ids E, E + 1, ... with
/// weight 1. The layer's router fills these columns (RouterSpec::fused_shared_experts). A caller that routes by itself
/// may give another weight, if it scales the sum afterwards.
///
/// Errors: invalid_argument  there are no shared experts, they have a gate, or their parts are not as wide as a routed
///         expert; only the shared or only the routed experts have biases; or the router's weights multiply the input
FusedShared fuse_shared_experts(const MoeShape& shape, const MoeWeights& weights, std::int32_t count);

/// The same for a layer whose weights are found by tensor name, all at once (find_layer_weights) or one by one
/// (LayerBuilder). The tensors of the shared experts keep their names.
MoeLayerConfig fuse_shared_experts(MoeLayerConfig config, std::int32_t count);

/// Expert E + index of a fused shape, as a view of `shared`, the matrices of all shared experts.
/// Errors: invalid_argument  index is out of range, or the matrices are not as wide as all shared experts together
ExpertMatrices fused_shared_expert(const MoeShape& fused, const ExpertMatrices& shared, std::int64_t index);

}  // namespace moecl
