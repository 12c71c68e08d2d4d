#pragma once
// The part of a layer's shape and weights that one rank of a group holds.
#include <moecl/layer_options.hpp>
#include <moecl/moe_weights.hpp>
#include <moecl/placement_plan.hpp>
#include <moecl/strategy.hpp>

namespace moecl {

/// The layer's shape with the intermediate sizes of the rank, and the weights of the same parts, as views.
/// Errors: invalid_argument  a size is too small for the ranks that share it
MoeShape shape_of_rank(const ExpertRank& rank, SharedSharding shared, const MoeShape& shape, const MoeWeights& weights);
MoeWeights weights_of_rank(const ExpertRank& rank, SharedSharding shared, const MoeShape& shape,
                           const MoeWeights& weights);

/// The rank's part of the expert's intermediate size. Errors: invalid_argument  as above
std::int64_t intermediate_of_rank(const ExpertRank& rank, const MoeShape& shape, const ExpertMatrices& expert);
/// The part of an expert that the rank has.
ExpertMatrices expert_of_rank(const ExpertRank& rank, const MoeShape& shape, const ExpertMatrices& expert);

/// The rank's places up to the last one with an expert.
std::int64_t places_of_experts(const ExpertRank& rank, const PlacementPlan& placement);
/// The rank's places that have weights. Free places at the end need none.
/// Errors: unsupported  free places at the end without weights in the batched layout, which has rows for them too
std::int64_t places_with_weights(const ExpertRank& rank, const PlacementPlan& placement, const MoeWeights& weights,
                                 const MoeLayerOptions& options);

}  // namespace moecl
