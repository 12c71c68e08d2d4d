#include <moecl/parallel_config.hpp>

#include "runtime/check.hpp"

namespace moecl {

ParallelConfig ParallelConfig::make(std::int32_t ranks, std::int32_t rank, std::int32_t tp, std::int32_t pcp,
                                    std::int32_t sp, bool enable_expert_parallel) {
  require(ranks >= 1 && rank >= 0 && rank < ranks, "parallel: rank {} of {}", rank, ranks);
  require(tp >= 1 && ranks % tp == 0, "parallel.tp: {} does not divide {} ranks", tp, ranks);
  require(pcp >= 1 && ranks / tp % pcp == 0, "parallel.pcp: {} does not divide {} groups of tp", pcp, ranks / tp);
  require(sp == 1 || sp == tp, "parallel.sp: {} is neither 1 nor tp, {}", sp, tp);
  ParallelConfig config;
  config.same_tokens = tp;
  config.pcp_size = pcp;
  config.pcp_rank = rank / tp % pcp;
  config.dp_size = ranks / tp / pcp;
  config.dp_rank = rank / tp / pcp;
  config.sp_size = sp;
  config.use_ep = enable_expert_parallel && ranks > 1;
  (config.use_ep ? config.ep_size : config.tp_size) = ranks;
  (config.use_ep ? config.ep_rank : config.tp_rank) = rank;
  return config;
}

ExpertRank ParallelConfig::expert_rank(const Communicator& world, std::int32_t experts,
                                       std::int32_t ranks_per_node) const {
  const std::int32_t ranks = same_tokens * pcp_size * dp_size;
  require(world.size() == ranks, "parallel: {} ranks of a grid, the group has {}", ranks, world.size());
  return {world, same_tokens, experts, sharding(), ranks_per_node};
}

}  // namespace moecl
