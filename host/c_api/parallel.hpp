#pragma once
// Layers over several ranks, as the C interface describes them.
#include <moecl/parallel_config.hpp>
#include <moecl/parallel_layer.h>
#include <moecl/parallel_layer.hpp>
#include <moecl/select_strategy.hpp>

#include "host/c_api/layer.hpp"
#include "host/c_api/ranks.hpp"

struct moecl_parallel_layer {
  std::shared_ptr<moecl::c_api::GroupOfStreams> ranks;
  moecl::ExpertRank rank;
  moecl::StrategyChoice strategy;
  moecl::PlacementPlan placement;
  moecl::ParallelLayer layer;
  std::string router_spec = {};                               ///< path of the spec it was loaded with; empty: none
  moecl::ParallelConfig place = {};                           ///< this rank in the engine's grid
  bool own_tokens = false, has_rules = false;                 ///< by replace_allreduce; rules choose per pass (AUTO)
  std::uint64_t bytes_received = 0, bytes_between_nodes = 0;  ///< by the last pass
};

namespace moecl::c_api {

/// The placement of the caller's table of `count` places. `count` must not be negative.
PlacementPlan given_placement(const std::int32_t* expert_of_place, std::int32_t count, std::int32_t experts,
                              bool may_lack);

/// What follows from the caller's options, the same on every rank.
struct Decided {
  ExpertSharding sharding;
  std::int32_t ranks_per_node;
  StrategyChoice strategy;
  ParallelPlan plan;
  ParallelConfig grid;  ///< of rank 0

  Decided(const moecl_parallel_options& from, const MoeShape& shape, std::int32_t ranks);
  ExpertRank rank_of(const Communicator& world) const {
    return {world, grid.same_tokens, plan.placement.physical(), sharding, ranks_per_node};
  }
};

moecl_parallel_layer* make_handle(std::shared_ptr<GroupOfStreams> ranks, const ExpertRank& rank, const Decided& decided,
                                  ParallelLayer layer);

}  // namespace moecl::c_api
