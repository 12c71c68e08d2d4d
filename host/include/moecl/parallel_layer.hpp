#pragma once
#include <moecl/moe_layer.hpp>
#include <moecl/placement_plan.hpp>
#include <moecl/strategy.hpp>

#include <memory>

namespace moecl {

/// How the ranks of a layer work together; the same for all of them.
struct ParallelPlan {
  StrategyKind strategy = StrategyKind::mc2;
  PlacementPlan placement = {};  ///< its places are what ExpertRank counts; empty: every expert at its own number
};

/// One rank of a MoE layer: the rank's experts, or its part of every expert, the router and the shared experts on its
/// device.
///
/// Every rank has an object of its own and calls the same functions with its own tokens, in a host thread of its own.
/// Threads: one thread an object. Lifetime: group and context outlive the layer; the layer outlives its commands.
class ParallelLayer {
 public:
  /// @param weights  The routed experts at the places [rank.first_expert, rank.first_expert + rank.local_experts);
  ///                 router and shared experts whole. Where ranks have parts of experts, the layer takes its part of I,
  ///                 the remainder of uneven parts going to the first ranks. Stops the host.
  /// Errors: as MoeLayer; invalid_argument  I is smaller than the ranks that share it; unsupported  the batched layout
  ParallelLayer(const ExpertRank& rank, const ParallelPlan& plan, const MoeShape& shape, const MoeWeights& weights,
                const MoeLayerOptions& options = {}, const LoadProgress& progress = {});
  ~ParallelLayer();
  ParallelLayer(ParallelLayer&&) noexcept;
  ParallelLayer& operator=(ParallelLayer&&) noexcept;

  const MoeShape& shape() const noexcept;
  const MoeLayerOptions& options() const noexcept;
  const MoeLayerReport& report() const noexcept;
  /// Device memory of the exchange and of rows between kernels; grows with the tokens seen.
  std::uint64_t workspace_bytes() const noexcept;

  struct Forward {
    TensorView x;    ///< Shape: [T, H] of options().dtype; ranks of one tp group bring the same tokens
    TensorView out;  ///< Shape: [T, H] f32, f16 or bf16
    /// Optional outputs.
    TensorView router_logits;  ///< Shape: [T, E] f32
    TensorView topk_ids;       ///< Shape: [T, K] i32, logical experts
    TensorView topk_weights;   ///< Shape: [T, K] f32
    TensorView routed_out;     ///< Shape: [T, H], `out` without the shared experts
    TensorView fault;          ///< optional in/out. Shape: [4] i32, see fault.hpp; zero it before, check_fault after
  };
  /// out = MoE(x), on the rank's stream.
  ///
  /// Errors: invalid_argument; deadline_exceeded  a peer failed or did not come
  /// Async:  waits for the peers' host threads; stops the host for a device only in all2all_v, once
  /// Empty:  T == 0 takes part in the exchange
  void forward(const Forward& args);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moecl
