#pragma once
#include <moecl/strategy.hpp>

#include <cstdint>

namespace moecl {

/// How an engine divides the ranks of a layer, one rank's place in it, and what becomes of it in the layer: all ranks
/// flatten into one group, which divides the experts or the intermediate size of each, never both.
///
/// The flat rank is (dp_rank * pcp_size + pcp_rank) * tp_size + tp_rank. Source: vLLM's FusedMoEParallelConfig.make
struct ParallelConfig {
  /// @param tp   Ranks that bring the same tokens. @param pcp  Of prefill context parallelism: ranks that bring other
  ///             tokens of the same requests
  /// @param sp   Of sequence parallelism: 1, or tp where the ranks of a tp group bring different tokens in MoE layers
  /// @param rank Flat, of ranks that are tp * pcp * dp
  /// Errors: invalid_argument
  static ParallelConfig make(std::int32_t ranks, std::int32_t rank, std::int32_t tp, std::int32_t pcp = 1,
                             std::int32_t sp = 1, bool enable_expert_parallel = true);

  std::int32_t tp_size = 1, tp_rank = 0;  ///< of the experts' intermediate size: the flat ones, or 1 and 0
  std::int32_t ep_size = 1, ep_rank = 0;  ///< of the experts: the flat ones, or 1 and 0
  std::int32_t dp_size = 1, dp_rank = 0;
  std::int32_t pcp_size = 1, pcp_rank = 0;
  std::int32_t sp_size = 1;
  std::int32_t same_tokens = 1;  ///< the tp that was given
  bool use_ep = false;

  /// Whether tokens travel to their experts; else results alone do.
  bool use_all2all() const noexcept { return use_ep && (dp_size > 1 || pcp_size > 1 || sp_size > 1); }
  ExpertSharding sharding() const noexcept { return use_ep ? ExpertSharding::experts : ExpertSharding::intermediate; }
  /// Of a layer of so many experts, or places. Its dp ranks are those of dp and pcp together: num_tokens_across_dp of
  /// a Step counts dp_rank * pcp_size + pcp_rank. With sp_size > 1 ParallelPlan::replace_allreduce is for it.
  ExpertRank expert_rank(const Communicator& world, std::int32_t experts, std::int32_t ranks_per_node = 0) const;
};

}  // namespace moecl
