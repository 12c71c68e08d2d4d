#include "host/layer/rank_weights.hpp"

#include "host/layer/weight_shard.hpp"
#include "runtime/check.hpp"
#include "runtime/quotient.hpp"

namespace moecl {
namespace {

/// This rank's part of an intermediate size: whole groups that share scales, divided as evenly as possible.
Share part_of(const char* what, std::int64_t intermediate, const ExpertMatrices& expert, const Communicator& ranks) {
  const std::int64_t unit = intermediate_unit(expert), units = quotient_up(intermediate, unit);
  require(units >= ranks.size(),
          "parallel layer: {}: an intermediate size of {} is too small for {} ranks, each with whole units of {} (what "
          "shares a scale)",
          what, intermediate, ranks.size(), unit);
  const Share mine = share_of(units, ranks.size(), ranks.rank());
  const std::int64_t begin = mine.begin * unit;
  return {begin, std::min(mine.count * unit, intermediate - begin)};
}

Share expert_part(const ExpertRank& rank, const MoeShape& shape, const ExpertMatrices& expert) {
  if (rank.sharding == ExpertSharding::experts) return {0, shape.intermediate};
  return part_of("experts", shape.intermediate, expert, rank.ep);
}

Share experts_part(const ExpertRank& rank, const MoeShape& shape, const MoeWeights& weights) {
  return weights.experts.empty() ? Share{0, shape.intermediate} : expert_part(rank, shape, weights.experts.front());
}

Share shared_part(const ExpertRank& rank, SharedSharding shared, const MoeShape& shape, const MoeWeights& weights) {
  if (shared != SharedSharding::intermediate || shape.shared_intermediate == 0) return {0, shape.shared_intermediate};
  return part_of("shared experts", shape.shared_intermediate, weights.shared, rank.tp);
}

}  // namespace

MoeShape shape_of_rank(const ExpertRank& rank, SharedSharding shared, const MoeShape& shape,
                       const MoeWeights& weights) {
  MoeShape here = shape;
  here.intermediate = experts_part(rank, shape, weights).count;
  here.shared_intermediate = shared_part(rank, shared, shape, weights).count;
  return here;
}

MoeWeights weights_of_rank(const ExpertRank& rank, SharedSharding shared, const MoeShape& shape,
                           const MoeWeights& weights) {
  MoeWeights here = weights;
  const Share part = experts_part(rank, shape, weights), of_shared = shared_part(rank, shared, shape, weights);
  if (part.count != shape.intermediate)
    for (ExpertMatrices& expert : here.experts) expert = intermediate_part(expert, shape.intermediate, part);
  if (of_shared.count != shape.shared_intermediate)
    here.shared = intermediate_part(weights.shared, shape.shared_intermediate, of_shared);
  return here;
}

std::int64_t intermediate_of_rank(const ExpertRank& rank, const MoeShape& shape, const ExpertMatrices& expert) {
  return expert_part(rank, shape, expert).count;
}

ExpertMatrices expert_of_rank(const ExpertRank& rank, const MoeShape& shape, const ExpertMatrices& expert) {
  const Share part = expert_part(rank, shape, expert);
  return part.count == shape.intermediate ? expert : intermediate_part(expert, shape.intermediate, part);
}

std::int64_t places_of_experts(const ExpertRank& rank, const PlacementPlan& placement) {
  std::int64_t places = rank.local_experts;
  if (placement.logical_of.empty()) return places;
  const auto first = placement.logical_of.begin() + rank.first_expert;
  while (places > 0 && first[places - 1] < 0) --places;
  return places;
}

std::int64_t places_with_weights(const ExpertRank& rank, const PlacementPlan& placement, const MoeWeights& weights,
                                 const MoeLayerOptions& options) {
  const std::int64_t used = places_of_experts(rank, placement);
  if (std::ssize(weights.experts) != used || used == rank.local_experts) return rank.local_experts;
  if (options.layout == ExpertLayout::batched)
    fail(ErrorCode::unsupported, "parallel layer: the batched layout has room for {} places, of which {} have weights",
         rank.local_experts, used);
  return used;
}

}  // namespace moecl
