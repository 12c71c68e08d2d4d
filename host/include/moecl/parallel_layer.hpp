#pragma once
#include <moecl/lost_experts.hpp>
#include <moecl/moe_layer.hpp>
#include <moecl/placement_plan.hpp>
#include <moecl/select_strategy.hpp>
#include <moecl/step.hpp>

#include <memory>
#include <optional>

namespace moecl {

/// How the ranks of a layer work together; the same for all of them.
struct ParallelPlan {
  StrategyKind strategy = StrategyKind::mc2;  ///< for passes whose step names none; unused with `rules`
  PlacementPlan placement = {};               ///< ExpertRank counts its places; empty: expert e at place e
  WireFormat wire = WireFormat::none;
  SharedSharding shared_sharding = SharedSharding::replicated;
  /// Ranks of a tp group bring different tokens, already divided among them, and get the sums of their own only. If
  /// each rank has a part of the shared experts' intermediate size, the shared experts get the tokens of all ranks, and
  /// their sums are scattered. Source: replace_allreduce of vllm-ascend
  bool replace_allreduce = false;
  /// Dual batch overlap: a batch runs as two micro-batches if the dp rank with the most tokens has at least this many.
  /// While the rows of one travel, the kernels of the other run. Twice the workspace. The first threshold is for steps
  /// of uniform_decode, the second for others. Unset: never. Source: vLLM, whose defaults are 32 and 512
  std::optional<std::int64_t> dbo_decode_token_threshold = {}, dbo_prefill_token_threshold = {};
  /// These rules choose the strategy of a pass whose step names none, by its tokens. Weights are the same for all.
  std::optional<StrategyRules> rules = {};
  ReplicaChoice replicas = ReplicaChoice::token_hash;
  std::vector<double> loads = {};  ///< for ReplicaChoice::by_need: load of each logical expert
  LostExperts lost = LostExperts::refused;
};

/// One rank of a MoE layer. On its device: the rank's experts, or its part of every expert, the router and the shared
/// experts.
///
/// Every rank has an object of its own and calls the same functions with its own tokens, in its own host thread.
/// dispatch/STRATEGIES.md says when results are the same to the bit, on like and unlike devices.
/// Threads: one thread an object. Lifetime: group and context outlive the layer; the layer outlives its commands.
class ParallelLayer {
 public:
  /// Stops the host. By all ranks, which agree about the plan, the shape and the options before anything is loaded.
  /// @param weights  The routed experts at the places [rank.first_expert, rank.first_expert + rank.local_experts). The
  ///                 free places at their end may be left out; they then have no memory (place_in_shares). Router and
  ///                 shared experts are whole. If ranks have parts of experts, the layer takes its part of I; the first
  ///                 ranks take the remainder.
  /// @param options  chunk_tokens: if the rank with the most tokens has more, every rank runs the same number of
  ///                 chunks; 0: no chunks. Batched layout: rows_per_expert is at least the tokens of all ranks in a
  ///                 chunk; 0: as many as may come.
  /// Errors: as MoeLayer; invalid_argument  I is smaller than the number of ranks that divide it, a plan made by hand
  ///         contradicts itself, or ranks disagree; unsupported  the batched layout of rows that travel as codes;
  ///         deadline_exceeded  a peer failed or did not come. Each ends the group
  ParallelLayer(const ExpertRank& rank, const ParallelPlan& plan, const MoeShape& shape, const MoeWeights& weights,
                const MoeLayerOptions& options = {}, const LoadProgress& progress = {});
  ~ParallelLayer();
  ParallelLayer(ParallelLayer&&) noexcept;
  ParallelLayer& operator=(ParallelLayer&&) noexcept;

  /// Replaces this rank's part of the weights by other weights of the same shape and formats, given as to the
  /// constructor, in the memory of the old ones. Earlier passes use the old weights. The ranks exchange nothing here:
  /// if they are to agree, they meet before the next pass. Stops the host. Errors: as MoeLayer::replace_weights
  void replace_weights(const MoeWeights& weights, const LoadProgress& progress = {});

  /// The same for the expert at one place of this rank, given whole. @param place  Range: [0, rank.local_experts)
  void replace_expert(std::int64_t place, const ExpertMatrices& weights);

  /// The expert at one place of this rank, or its part of it, as in MoeLayer, after the commands enqueued before.
  std::uint64_t packed_expert_bytes() const;
  std::vector<std::byte> packed_expert(std::int64_t place) const;  ///< those bytes
  PlainExpert plain_expert(std::int64_t place) const;              ///< those numbers
  /// As MoeLayer::replace_packed_expert
  void replace_packed_expert(std::int64_t place, const std::vector<std::byte>& packed);

  /// Changes the experts of the places from the next pass on, to those of `placement`. Their weights are there already,
  /// by replace_expert or copy_expert_in. The table is swapped on the rank's stream, so earlier passes use the old one.
  /// Errors: invalid_argument  another number of places, an expert at a place without memory, or ranks disagree: the
  ///         old table stays, but the group ends
  /// @param loads  for ReplicaChoice::by_need
  void update_expert_map(const PlacementPlan& placement, const std::vector<double>& loads = {});
  /// The table in force.
  const PlacementPlan& placement() const noexcept;
  const ExpertRank& rank() const noexcept;
  /// The number of places of this rank with memory for an expert: its first ones. The others are free, and stay so.
  std::int64_t expert_places() const noexcept;

  /// Bytes of an expert as one run of device memory, for moves between ranks. The same on all ranks of like devices. 0:
  /// this rank has no experts.
  std::uint64_t expert_bytes() const;
  /// Copies the expert at a place of this rank to such a run. Async
  void copy_expert_out(StreamView stream, std::int64_t place, BufferView to) const;
  /// The reverse, on the rank's stream. Async
  void copy_expert_in(std::int64_t place, BufferView from);

  /// Moves the layer, with its weights, into another group: what is left of the old one, or more. No command of this
  /// layer may be under way. By all ranks of the new group. Ranks that are new make their layers instead, or have made
  /// them in a group of their own while the others had passes.
  /// @param rank  of the new group, with as many places as this rank has
  /// Errors: invalid_argument  another number of places; as the constructor. This layer then stays as it was
  ParallelLayer in_group(const ExpertRank& rank, const PlacementPlan& placement) &&;

  const MoeShape& shape() const noexcept;
  const MoeLayerOptions& options() const noexcept;
  const MoeLayerReport& report() const noexcept;
  /// Statistics of MoeLayerOptions::budget over the passes so far; nothing without a budget. Stops the host.
  ResidencyCounts residency() const;
  /// Device memory for exchanges and for rows between kernels. All layers of the same ranks share it: they take turns.
  /// Grows with the tokens seen.
  std::uint64_t workspace_bytes() const noexcept;
  /// Max bytes of that memory, or of the caller's workspace, that a pass of this step takes, if no rank has more than
  /// max_tokens_across_dp. Windows of mc2, which peers reach, are not included. With all2all_v the pass takes less
  /// unless every token chooses experts of this rank.
  /// Errors: invalid_argument  max_tokens_across_dp is unset or negative; as Strategy::expect_possible
  std::uint64_t workspace_bytes(const Step& step) const;

  /// The operands of a pass of this rank. Ranks bring their own tokens; ranks of one tp group bring the same ones. Ids
  /// name logical experts, but expert_num_tokens counts by place.
  using Forward = MoeForward;
  /// out = MoE(x), on the rank's stream. Shared experts run while the exchange travels on its own queue. `out` may be
  /// x; otherwise the pass's outputs overlap no other operand. A workspace of the caller has workspace_bytes(step)
  /// bytes and needs step.max_tokens_across_dp; without one the pass takes the memory shared by the ranks' layers.
  ///
  /// Errors: invalid_argument  before any rank enqueues anything, also if ranks disagree about the step;
  ///         deadline_exceeded  a peer failed or did not come. Either ends the group
  /// Async:  waits for the peers' host threads; stops the host for a device only in all2all_v, once
  /// Empty:  T == 0 takes part in the exchange
  /// @param submit  Events of this rank's stream alone
  void forward(const Forward& args, const Step& step = {}, Submit submit = {});
  /// The same for a step that the ranks have agreed on before, which other layers of these ranks may use too. The ranks
  /// do not agree on the step again: with put windows of mc2, host threads do not meet at all.
  /// Errors: also invalid_argument  x has another number of tokens. A call that is refused on one rank alone ends the
  ///         group, but others may have enqueued their part. If a tp group divides the intermediate size of shared
  ///         experts, either all its ranks ask for routed_out or shared_out, or none
  void forward(const Forward& args, const AgreedStep& step, Submit submit = {});
  /// Brings experts into device memory that a later pass may need, as MoeLayer::prefetch: those at this rank's places
  /// that the tokens of all ranks would choose. By all ranks, in the same order as their passes. The prefetch runs on a
  /// queue of the layer, after the commands enqueued on the rank's stream so far. Only the next pass of this layer
  /// waits for it, so a pass of the previous layer, enqueued after this call, runs meanwhile.
  ///
  /// Enqueues nothing if no rank has a budget. Brings nothing if the tokens of all ranks, with all their experts,
  /// exceed the slots of some rank.
  /// @param tokens  of this rank: x, ids or given_logits as in `forward`; they must not change before submit.done
  /// @param submit  Events of that queue
  /// Errors: as forward. Async: waits for the peers' host threads; never stops the host for a device
  /// Empty:  T == 0 takes part
  void prefetch(const MoeInputs& tokens, Submit submit = {});
  /// Runs only the experts of this rank's places, over rows that the caller's exchange brought, on the rank's stream:
  /// as MoeLayer::forward_experts. By this rank alone. A rank that has a part of every expert gives its part of the
  /// sums.
  void forward_experts(const ExpertRows& rows, Submit submit = {});
  /// As MoeLayer::expert_workspace_bytes
  std::uint64_t expert_workspace_bytes(std::int64_t rows, std::int64_t slots = 0) const;
  /// A step for this layer and all others of the same ranks. By all ranks: one meeting of their host threads.
  /// @param tokens  T of this rank. Errors: as AgreedStep
  AgreedStep agree(const Step& step, std::int64_t tokens) const;
  /// The strategy of the last pass, and why. Before the first pass: the plan's, without a reason if rules choose.
  const StrategyChoice& last_strategy() const noexcept;
  /// Whether this rank has a router; without a router, passes bring logits or ids.
  bool has_router() const noexcept;

 private:
  friend class LayerBuilder;
  ParallelLayer(const ParallelPlan& plan, LayerAssembly& weights);

  struct State;
  struct Ahead;
  explicit ParallelLayer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace moecl
