#pragma once
#include <moecl/moe_weights.hpp>

namespace moecl {

/// A layer whose shared experts are extra routed ones: num_fused_shared_experts of vLLM.
struct FusedShared {
  MoeShape shape;
  MoeWeights weights;
};

/// The shared experts as `count` experts that follow the E routed ones, each with an equal part of their intermediate
/// size, which is that of a routed expert. The caller chooses the routing: ids have K + count columns, of which the
/// last say E, E + 1, ... with weight 1 (divided by what scales the routed sum afterwards). They then stand and travel
/// as all experts do. No router: it would have to know of choices that are none.
///
/// Errors: invalid_argument  there are no shared experts, they have a gate, or their parts are not as wide as a routed
///         expert; or biases are of one kind alone
FusedShared fuse_shared_experts(const MoeShape& shape, const MoeWeights& weights, std::int32_t count);

}  // namespace moecl
