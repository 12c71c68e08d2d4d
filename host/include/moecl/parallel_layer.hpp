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
  StrategyKind strategy = StrategyKind::mc2;  ///< of passes whose step says none; with `rules`, of none
  PlacementPlan placement = {};  ///< its places are what ExpertRank counts; empty: every expert at its own number
  WireFormat wire = WireFormat::none;
  SharedSharding shared_sharding = SharedSharding::replicated;
  /// Ranks of a tp group bring different tokens, already shared out among them, and get sums of those only. Shared
  /// experts of which each has a part of the intermediate size get the tokens of all, and their sums are scattered.
  /// Source: replace_allreduce of vllm-ascend
  bool replace_allreduce = false;
  /// Dual batch overlap: batches of so many tokens or more, on the dp rank that has most, run as two micro-batches:
  /// while rows of one travel, the other's kernels run. Twice the workspace. The first is for steps of uniform_decode,
  /// the second for others. Unset: never. Source: vLLM, whose defaults are 32 and 512
  std::optional<std::int64_t> dbo_decode_token_threshold = {}, dbo_prefill_token_threshold = {};
  /// Passes whose step says no strategy take what these choose for its tokens, each over the same weights.
  std::optional<StrategyRules> rules = {};
  ReplicaChoice replicas = ReplicaChoice::token_hash;
  std::vector<double> loads = {};  ///< of ReplicaChoice::by_need, by logical expert
  LostExperts lost = LostExperts::refused;
};

/// One rank of a MoE layer: the rank's experts, or its part of every expert, the router and the shared experts on its
/// device.
///
/// Every rank has an object of its own and calls the same functions with its own tokens, in a host thread of its own.
/// What ranks promise of each other's bits, on like and unlike devices: dispatch/STRATEGIES.md.
/// Threads: one thread an object. Lifetime: group and context outlive the layer; the layer outlives its commands.
class ParallelLayer {
 public:
  /// @param weights  The routed experts at the places [rank.first_expert, rank.first_expert + rank.local_experts), or
  ///                 without those of the free places at their end, which then have no memory: see place_in_shares;
  ///                 router and shared experts whole. Where ranks have parts of experts, the layer takes its part of I,
  ///                 the remainder of uneven parts going to the first ranks. Stops the host.
  ///                 By all ranks, which agree about the plan, the shape and the options before anything is loaded.
  /// @param options  chunk_tokens: longer inputs, of the rank that has most, run in as many chunks on every rank;
  ///                 0: none. Batched layout: rows_per_expert is at least the tokens of all ranks in a chunk; 0: as
  ///                 many as may come.
  /// Errors: as MoeLayer; invalid_argument  I is smaller than the ranks that share it, a plan made by hand contradicts
  ///         itself, or ranks disagree; unsupported  the batched layout of rows that travel as codes;
  ///         deadline_exceeded  a peer failed or did not come. Each ends the group
  ParallelLayer(const ExpertRank& rank, const ParallelPlan& plan, const MoeShape& shape, const MoeWeights& weights,
                const MoeLayerOptions& options = {}, const LoadProgress& progress = {});
  ~ParallelLayer();
  ParallelLayer(ParallelLayer&&) noexcept;
  ParallelLayer& operator=(ParallelLayer&&) noexcept;

  /// This rank's share of other weights of the same shape and formats, as given to the constructor, into the memory of
  /// the old ones; passes before have those. Exchanges nothing, so ranks that are to agree meet before the next pass.
  /// Stops the host. Errors: as MoeLayer::replace_weights
  void replace_weights(const MoeWeights& weights, const LoadProgress& progress = {});

  /// The same of the expert at one place of this rank, given whole. @param place  Range: [0, rank.local_experts)
  void replace_expert(std::int64_t place, const ExpertMatrices& weights);

  /// The expert at one place of this rank, or its part of it, as MoeLayer has it; after what was enqueued before.
  std::uint64_t packed_expert_bytes() const;
  std::vector<std::byte> packed_expert(std::int64_t place) const;  ///< those bytes
  PlainExpert plain_expert(std::int64_t place) const;              ///< those numbers
  /// As MoeLayer::replace_packed_expert
  void replace_packed_expert(std::int64_t place, const std::vector<std::byte>& packed);

  /// Other experts stand at the places from the next pass on: those of `placement`, whose weights are there, by
  /// replace_expert or copy_expert_in. The table is swapped on the rank's stream, so passes before have the old one.
  /// Errors: invalid_argument  another number of places, an expert at a place without memory, or ranks disagree: the
  ///         old table stays, but the group ends
  /// @param loads  of ReplicaChoice::by_need
  void update_expert_map(const PlacementPlan& placement, const std::vector<double>& loads = {});
  /// The table in force.
  const PlacementPlan& placement() const noexcept;
  const ExpertRank& rank() const noexcept;
  /// Places of this rank that have memory for an expert: its first ones. The others are free, and stay so.
  std::int64_t expert_places() const noexcept;

  /// An expert as one run of device memory, for moves between ranks: so many bytes, the same on all ranks of alike
  /// devices. 0: this rank has none.
  std::uint64_t expert_bytes() const;
  /// Copies the expert at a place of this rank to such a run. Async
  void copy_expert_out(StreamView stream, std::int64_t place, BufferView to) const;
  /// The reverse, on the rank's stream. Async
  void copy_expert_in(std::int64_t place, BufferView from);

  /// The same layer, with the weights it has, in another group: what is left of the old one, or more. Nothing of this
  /// layer may be under way. By all ranks of the new group, of which those that are new make their layers instead, or
  /// have made them in a group of their own while the others had passes.
  /// @param rank  of the new group, with as many places as this rank has
  /// Errors: invalid_argument  another number of places; as the constructor. This layer is then as it was
  ParallelLayer in_group(const ExpertRank& rank, const PlacementPlan& placement) &&;

  const MoeShape& shape() const noexcept;
  const MoeLayerOptions& options() const noexcept;
  const MoeLayerReport& report() const noexcept;
  /// What became of MoeLayerOptions::budget in the passes so far; nothing without one. Stops the host.
  ResidencyCounts residency() const;
  /// Device memory of exchanges and of rows between kernels, which all layers of the same ranks share: they take turns
  /// in it. Grows with the tokens seen.
  std::uint64_t workspace_bytes() const noexcept;
  /// What a pass of such a step takes of it at most, or of the caller's workspace, where no rank has more than
  /// max_tokens_across_dp; windows of mc2, which peers reach, apart. With all2all_v the pass takes less unless every
  /// token chooses experts of this rank.
  /// Errors: invalid_argument  max_tokens_across_dp is unset or negative; as Strategy::expect_possible
  std::uint64_t workspace_bytes(const Step& step) const;

  /// The operands of a pass of this rank, whose tokens are its own; ranks of one tp group bring the same ones. Ids are
  /// logical experts, but expert_num_tokens counts by place.
  using Forward = MoeForward;
  /// out = MoE(x), on the rank's stream. Shared experts run while the exchange travels on a queue of its own. `out` may
  /// be x; otherwise what is written overlaps nothing else here. A workspace of the caller's has workspace_bytes(step),
  /// and needs step.max_tokens_across_dp; without one the pass takes that of the ranks' layers.
  ///
  /// Errors: invalid_argument  before any rank enqueues anything, also where ranks disagree about the step;
  ///         deadline_exceeded  a peer failed or did not come. Either ends the group
  /// Async:  waits for the peers' host threads; stops the host for a device only in all2all_v, once
  /// Empty:  T == 0 takes part in the exchange
  /// @param submit  Events of this rank's stream alone
  void forward(const Forward& args, const Step& step = {}, Submit submit = {});
  /// The same, of a step that the ranks agreed about before, and that other layers of these ranks may have too. Asks no
  /// rank about it again: with put windows of mc2 host threads do not meet at all.
  /// Errors: also invalid_argument  x has another number of tokens; what one rank alone is refused ends the group, but
  ///         others may have enqueued their part. Ranks of a tp group that divide the intermediate size of shared
  ///         experts all ask for routed_out or shared_out, or none
  void forward(const Forward& args, const AgreedStep& step, Submit submit = {});
  /// Brings experts of this rank's places that a pass to come may need to device memory, as MoeLayer::prefetch: those
  /// that the tokens of all ranks would choose here. By all ranks, in the same order as their passes. It runs on a
  /// queue of the layer's own, after what the rank's stream was given so far, and nobody waits but the next pass of
  /// this layer: so a pass of the layer before, enqueued after this call, runs meanwhile.
  ///
  /// Nothing is enqueued where no rank has a budget, and nothing is brought for more tokens of all ranks than fit the
  /// slots of some rank with all their experts.
  /// @param tokens  of this rank, x, ids or given_logits as of `forward`; they stay as they are until submit.done
  /// @param submit  Events of that queue
  /// Errors: as forward. Async: waits for the peers' host threads; never stops the host for a device
  /// Empty:  T == 0 takes part
  void prefetch(const MoeInputs& tokens, Submit submit = {});
  /// The experts of this rank's places alone, over rows that an exchange of the caller's brought, on the rank's stream:
  /// as MoeLayer::forward_experts. By this rank alone; with a part of every expert it gives its part of the sums.
  void forward_experts(const ExpertRows& rows, Submit submit = {});
  /// As MoeLayer::expert_workspace_bytes
  std::uint64_t expert_workspace_bytes(std::int64_t rows, std::int64_t slots = 0) const;
  /// A step for this layer and all others of the same ranks: one meeting. By all ranks.
  /// @param tokens  T of this rank. Errors: as AgreedStep
  AgreedStep agree(const Step& step, std::int64_t tokens) const;
  /// What the last pass took, and why; before the first the plan's, without a reason where rules choose.
  const StrategyChoice& last_strategy() const noexcept;
  /// Whether this rank has a router; without one passes bring logits or ids.
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
