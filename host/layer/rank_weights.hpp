#pragma once
// What one rank of a group holds of a layer.
#include <moecl/layer_options.hpp>
#include <moecl/moe_weights.hpp>
#include <moecl/placement_plan.hpp>
#include <moecl/strategy.hpp>

namespace moecl {

/// The layer's shape with the intermediate sizes that the rank has; its weights the same, as views.
/// Errors: invalid_argument  a size is too small for the ranks that share it
MoeShape shape_of_rank(const ExpertRank& rank, SharedSharding shared, const MoeShape& shape, const MoeWeights& weights);
MoeWeights weights_of_rank(const ExpertRank& rank, SharedSharding shared, const MoeShape& shape,
                           const MoeWeights& weights);

/// What the rank has of its intermediate size. Errors: invalid_argument  as above
std::int64_t intermediate_of_rank(const ExpertRank& rank, const MoeShape& shape, const ExpertMatrices& expert);
/// The part of an expert that the rank has.
ExpertMatrices expert_of_rank(const ExpertRank& rank, const MoeShape& shape, const ExpertMatrices& expert);

/// Places of the rank up to its last expert.
std::int64_t places_of_experts(const ExpertRank& rank, const PlacementPlan& placement);
/// Its places for which there are weights: free ones at their end need none.
/// Errors: unsupported  the batched layout, which has rows of those too
std::int64_t places_with_weights(const ExpertRank& rank, const PlacementPlan& placement, const MoeWeights& weights,
                                 const MoeLayerOptions& options);

}  // namespace moecl
