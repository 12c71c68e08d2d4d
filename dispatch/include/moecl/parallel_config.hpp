#pragma once
#include <moecl/strategy.hpp>

#include <cstdint>

namespace moecl {

/// How an engine's grid of ranks maps to a layer, for one rank. The layer flattens all ranks into one group, which
/// divides either the experts or the intermediate size of each expert, never both.
///
/// The flat rank is (dp_rank * pcp_size + pcp_rank) * tp_size + tp_rank. Source: vLLM's FusedMoEParallelConfig.make
struct ParallelConfig {
  /// @param tp   Ranks that bring the same tokens. @param pcp  Prefill context parallelism: ranks that bring other
  ///             tokens of the same requests
  /// @param sp   Sequence parallelism: 1, or tp where the ranks of a tp group bring different tokens in MoE layers
  /// @param rank Flat rank, below `ranks` = tp * pcp * dp
  /// Errors: invalid_argument
  static ParallelConfig make(std::int32_t ranks, std::int32_t rank, std::int32_t tp, std::int32_t pcp = 1,
                             std::int32_t sp = 1, bool enable_expert_parallel = true);

  std::int32_t tp_size = 1, tp_rank = 0;  ///< division of the intermediate size: flat size and rank, or 1 and 0
  std::int32_t ep_size = 1, ep_rank = 0;  ///< division of the experts: flat size and rank, or 1 and 0
  std::int32_t dp_size = 1, dp_rank = 0;
  std::int32_t pcp_size = 1, pcp_rank = 0;
  std::int32_t sp_size = 1;
  std::int32_t same_tokens = 1;  ///< the `tp` given to make
  bool use_ep = false;

  /// Whether tokens travel to the ranks of their experts; otherwise only results travel.
  bool use_all2all() const noexcept { return use_ep && (dp_size > 1 || pcp_size > 1 || sp_size > 1); }
  ExpertSharding sharding() const noexcept { return use_ep ? ExpertSharding::experts : ExpertSharding::intermediate; }
  /// This rank's place in a layer of `experts` experts (or places). Its dp ranks are those of dp and pcp together:
  /// num_tokens_across_dp of a Step is indexed by dp_rank * pcp_size + pcp_rank. With sp_size > 1 set
  /// ParallelPlan::replace_allreduce.
  ExpertRank expert_rank(const Communicator& world, std::int32_t experts, std::int32_t ranks_per_node = 0) const;
};

}  // namespace moecl
