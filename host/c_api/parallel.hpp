#pragma once
// Layers over ranks as the C interface describes them.
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
  std::string router_spec = {};                               ///< path; of a layer that was loaded by one
  moecl::ParallelConfig place = {};                           ///< in the engine's grid
  bool own_tokens = false, has_rules = false;                 ///< of each rank: replace_allreduce; AUTO for each pass
  std::uint64_t bytes_received = 0, bytes_between_nodes = 0;  ///< in the last pass
};

namespace moecl::c_api {

/// Of the caller's table, of which `count` is not negative.
PlacementPlan given_placement(const std::int32_t* expert_of_place, std::int32_t count, std::int32_t experts,
                              bool may_lack);

/// Everything of the caller's options that every rank decides alike.
struct Decided {
  ExpertSharding sharding;
  std::int32_t ranks_per_node;
  StrategyChoice strategy;
  ParallelPlan plan;
  ParallelConfig grid;  ///< of its first rank

  Decided(const moecl_parallel_options& from, const MoeShape& shape, std::int32_t ranks);
  ExpertRank rank_of(const Communicator& world) const {
    return {world, grid.same_tokens, plan.placement.physical(), sharding, ranks_per_node};
  }
};

moecl_parallel_layer* make_handle(std::shared_ptr<GroupOfStreams> ranks, const ExpertRank& rank, const Decided& decided,
                                  ParallelLayer layer);

}  // namespace moecl::c_api
