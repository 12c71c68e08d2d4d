// ParallelLayer except for its passes: construction, agreement of the ranks, changes of weights and placement.
#include "host/layer/parallel_state.hpp"

#include "host/layer/layer_assembly.hpp"

namespace moecl {

const char* name(SharedSharding sharding) noexcept {
  switch (sharding) {
    case SharedSharding::tokens:
      return "tokens";
    case SharedSharding::intermediate:
      return "intermediate";
    case SharedSharding::replicated:
      break;
  }
  return "replicated";
}

namespace {

void expect_possible(const ExpertRank& rank, const ParallelPlan& plan, const MoeShape& shape,
                     const MoeLayerOptions& options) {
  const PlacementPlan& placement = plan.placement;
  const bool placed = !placement.logical_of.empty();
  if (placed) placement.check();
  require(!placed || placement.logical() == shape.experts, "parallel layer: {} experts are placed, the shape has {}",
          placement.logical(), shape.experts);
  require(rank.experts == (placed ? placement.physical() : shape.experts),
          "parallel layer: the rank shards {} experts, the {} has {}", rank.experts, placed ? "placement" : "shape",
          placed ? placement.physical() : shape.experts);
  if (options.layout == ExpertLayout::batched && plan.wire != WireFormat::none)
    fail(ErrorCode::unsupported, "parallel layer: the batched layout is of rows as they are, not of {} codes",
         name(plan.wire));
  for (const OperandQuant& activations : {options.activations, options.shared_activations})
    if (activations.quantized() && activations.group == ScaleGroup::per_tensor() && !activations.static_scale)
      fail(ErrorCode::unsupported,
           "parallel layer: activations as {} would depend on which rows each rank gets; static scales, or those of "
           "each "
           "token, do not",
           describe(activations));
  for (const std::optional<std::int64_t>& threshold :
       {plan.dbo_decode_token_threshold, plan.dbo_prefill_token_threshold})
    require(threshold.value_or(0) >= 0, "parallel layer: micro-batches from {} tokens", threshold.value_or(0));
  // Rules choose for each pass, what any rank can.
  Strategy::expect_possible(plan.rules ? StrategyKind::all_gather : plan.strategy, rank,
                            problem_of(shape, options, plan.wire));
}

/// All values that must be equal on all ranks. Otherwise tokens would miss their experts, or sums would mix layers.
std::vector<Agreed> agreed_by_ranks(const ExpertRank& rank, const ParallelPlan& plan, const MoeShape& shape,
                                    const MoeLayerOptions& options) {
  const RouterSpec& router = shape.router;
  const Activation& activation = shape.activation;
  return {{"strategy", plan.strategy},
          {"placement", plan.placement.placement},
          {"places", rank.experts},
          {"experts by place", plan.placement.is_identity() ? std::vector<std::int32_t>() : plan.placement.logical_of},
          {"wire", plan.wire},
          {"sharding", rank.sharding},
          {"ranks of a tp group", rank.tp.size()},
          {"ranks of a node", rank.node.size()},
          {"shared_sharding", plan.shared_sharding},
          {"replace_allreduce", plan.replace_allreduce},
          {"dbo_decode_token_threshold", plan.dbo_decode_token_threshold},
          {"dbo_prefill_token_threshold", plan.dbo_prefill_token_threshold},
          {"rules", plan.rules},
          {"chunk_tokens", options.chunk_tokens},
          {"dtype", options.dtype},
          {"batched layout", options.layout == ExpertLayout::batched},
          {"rows_per_expert", options.rows_per_expert},
          {"activations", describe(options.activations)},
          {"shared_activations", describe(options.shared_activations)},
          {"quantize", describe(options.quantize)},
          {"router_dtype", options.router_dtype.value_or(DType::u8)},
          {"hidden", shape.hidden},
          {"expert_hidden", shape.expert_hidden},
          {"zero, copy and constant experts",
           std::vector<int>{shape.zero_experts, shape.copy_experts, shape.const_experts}},
          {"vocabulary", shape.vocabulary},
          {"intermediate", shape.intermediate},
          {"experts", shape.experts},
          {"shared_intermediate", shape.shared_intermediate},
          {"top_k", router.top_k},
          {"fused_shared_experts", router.fused_shared_experts},
          {"router",
           std::vector<double>{static_cast<double>(router.score), static_cast<double>(router.order),
                               static_cast<double>(router.groups), static_cast<double>(router.kept_groups),
                               static_cast<double>(router.group_score), router.renormalise ? 1.0 : 0.0,
                               router.renormalise_epsilon, router.scaling_factor, router.weight_on_input ? 1.0 : 0.0,
                               router.renormalise_minimum, router.mixer_jitter}},
          {"activation", std::vector<double>{static_cast<double>(activation.function), activation.gated ? 1.0 : 0.0,
                                             activation.alpha, activation.limit, activation.bias}},
          {"biases and gates", std::vector<int>{shape.shared_gate, shape.selection_bias, shape.router_bias,
                                                shape.expert_bias, shape.shared_bias}}};
}

/// Collective: all ranks call it. They also agree about the values of agreed_by_ranks.
std::optional<DType> agreed_router_dtype(const ExpertRank& rank, const ParallelPlan& plan, const MoeShape& shape,
                                         const MoeLayerOptions& options, DType alone) {
  expect_possible(rank, plan, shape, options);
  // A rank without experts does not know the dtype of the experts, on which that of the router depends.
  for (const auto& theirs :
       rank.ep.share("parallel layer", {alone == DType::f32 ? 1 : 0}, agreed_by_ranks(rank, plan, shape, options)))
    if (theirs.front() == 1) return DType::f32;
  return options.router_dtype;
}

}  // namespace

ParallelLayer::ParallelLayer(const ExpertRank& rank, const ParallelPlan& plan, const MoeShape& shape,
                             const MoeWeights& weights, const MoeLayerOptions& options, const LoadProgress& progress) {
  rank.ep.together([&] {
    MoeLayerOptions agreed = options;
    agreed.router_dtype = agreed_router_dtype(rank, plan, shape, options, router_dtype(weights, options));
    state_ = std::make_unique<State>(
        rank, plan, shape, options.router_dtype,
        LayerParts(rank.ep.rank_stream(), shape_of_rank(rank, plan.shared_sharding, shape, weights),
                   weights_of_rank(rank, plan.shared_sharding, shape, weights),
                   places_with_weights(rank, plan.placement, weights, options), agreed, progress));
  });
}

ParallelLayer::ParallelLayer(const ParallelPlan& plan, LayerAssembly& weights) {
  const ExpertRank& rank = *weights.rank();
  rank.ep.together([&] {
    weights.expect_whole();
    const std::optional<DType> router =
        agreed_router_dtype(rank, plan, weights.shape(), weights.options(), weights.router_dtype_alone());
    const std::optional<DType> asked = weights.options().router_dtype;
    state_ = std::make_unique<State>(rank, plan, weights.shape(), asked, weights.finish(router));
  });
}
ParallelLayer::~ParallelLayer() = default;
ParallelLayer::ParallelLayer(ParallelLayer&&) noexcept = default;
ParallelLayer& ParallelLayer::operator=(ParallelLayer&&) noexcept = default;
void ParallelLayer::replace_weights(const MoeWeights& weights, const LoadProgress& progress) {
  const State& of = *state_;
  const SharedSharding shared = of.plan.shared_sharding;
  state_->parts.replace(of.rank.ep.rank_stream(), weights_of_rank(of.rank, shared, of.shape, weights), progress);
}
void ParallelLayer::replace_expert(std::int64_t place, const ExpertMatrices& weights) {
  const State& of = *state_;
  state_->parts.replace_expert(of.rank.ep.rank_stream(), place, expert_of_rank(of.rank, of.shape, weights));
}
std::uint64_t ParallelLayer::packed_expert_bytes() const { return state_->parts.packed_expert_bytes(); }
std::vector<std::byte> ParallelLayer::packed_expert(std::int64_t place) const {
  return state_->parts.packed_expert(state_->rank.ep.rank_stream(), place);
}
PlainExpert ParallelLayer::plain_expert(std::int64_t place) const {
  return state_->parts.plain_expert(state_->rank.ep.rank_stream(), place);
}
void ParallelLayer::replace_packed_expert(std::int64_t place, const std::vector<std::byte>& packed) {
  state_->parts.replace_packed_expert(state_->rank.ep.rank_stream(), place, packed);
}
ParallelLayer::ParallelLayer(std::unique_ptr<State> state) : state_(std::move(state)) {}

void ParallelLayer::update_expert_map(const PlacementPlan& placement, const std::vector<double>& loads) {
  State& of = *state_;
  of.rank.ep.together([&] {
    placement.check();
    require(placement.logical() == of.shape.experts && placement.physical() == of.rank.experts,
            "update_expert_map: {} experts at {} places, the layer has {} at {}", placement.logical(),
            placement.physical(), of.shape.experts, of.rank.experts);
    ParallelPlan plan = of.plan;
    plan.placement = placement;
    if (plan.replicas == ReplicaChoice::by_need) plan.loads = loads;
    of.expect_memory_for(placement, of.rank);
    const ReplicaTable table = State::table_of(of.rank, plan);
    of.rank.ep.share("update_expert_map", {}, {{"experts by place", placement.logical_of}});
    if (of.ahead != nullptr) of.ahead->rank.ep.join();  // prefetches under way read the old table
    of.places.update(of.rank.ep.rank_stream(), placement, table, plan.lost);
    of.plan = std::move(plan);
    of.plans.clear();
    if (of.ahead != nullptr) of.ahead->plans.clear();
  });
}
const PlacementPlan& ParallelLayer::placement() const noexcept { return state_->plan.placement; }
const ExpertRank& ParallelLayer::rank() const noexcept { return state_->rank; }
std::int64_t ParallelLayer::expert_places() const noexcept { return state_->parts.local_experts(); }

std::uint64_t ParallelLayer::expert_bytes() const { return state_->parts.experts.expert_bytes(); }
void ParallelLayer::copy_expert_out(StreamView stream, std::int64_t place, BufferView to) const {
  const State& of = *state_;
  of.parts.expect_whole();
  require(place >= 0 && place < expert_places(), "copy_expert_out: place {} is not in [0, {})", place, expert_places());
  require(to.size_bytes >= expert_bytes(), "copy_expert_out: {} bytes, an expert has {}", to.size_bytes,
          expert_bytes());
  of.parts.experts.copy_out(stream, place, to);
}
void ParallelLayer::copy_expert_in(std::int64_t place, BufferView from) {
  State& of = *state_;
  of.parts.expect_whole();
  require(place >= 0 && place < expert_places(), "copy_expert_in: place {} is not in [0, {})", place, expert_places());
  require(from.size_bytes >= expert_bytes(), "copy_expert_in: {} bytes, an expert has {}", from.size_bytes,
          expert_bytes());
  of.parts.experts.copy_in(of.rank.ep.rank_stream(), place, from);
}

ParallelLayer ParallelLayer::in_group(const ExpertRank& rank, const PlacementPlan& placement) && {
  State& old = *state_;
  ParallelPlan plan = old.plan;
  plan.placement = placement;
  return rank.ep.together([&] {
    require(rank.local_experts == old.rank.local_experts && rank.sharding == old.rank.sharding &&
                rank.ep.rank_stream().device == old.rank.ep.rank_stream().device,
            "in_group: {} places here, the layer has {}, or another device or sharding", rank.local_experts,
            old.rank.local_experts);
    require(rank.sharding == ExpertSharding::experts, "in_group: ranks have parts of every expert");
    require(plan.shared_sharding != SharedSharding::intermediate ||
                (rank.tp.size() == old.rank.tp.size() && rank.tp.rank() == old.rank.tp.rank()),
            "in_group: rank {} of {} of a tp group takes the shared experts' part of rank {} of {}", rank.tp.rank(),
            rank.tp.size(), old.rank.tp.rank(), old.rank.tp.size());
    // The same agreement as in the constructor, since other ranks may be constructing their layers now.
    const LayerParts& parts = old.parts;
    MoeLayerOptions asked = parts.options;
    asked.router_dtype = old.router_dtype;
    const DType stored = parts.has_router ? parts.report.router_dtype : asked.dtype;
    const DType agreed = agreed_router_dtype(rank, plan, old.shape, asked, stored).value_or(stored);
    require(agreed == stored, "in_group: the router is {} here, and {} by the other ranks", name(stored), name(agreed));
    old.expect_memory_for(placement, rank);
    return ParallelLayer(std::make_unique<State>(rank, plan, old.shape, old.router_dtype, std::move(old.parts)));
  });
}

const MoeShape& ParallelLayer::shape() const noexcept { return state_->shape; }
const MoeLayerOptions& ParallelLayer::options() const noexcept { return state_->parts.options; }
const MoeLayerReport& ParallelLayer::report() const noexcept { return state_->parts.report; }
ResidencyCounts ParallelLayer::residency() const {
  return state_->parts.experts.residency(state_->rank.ep.rank_stream());
}
bool ParallelLayer::has_router() const noexcept { return state_->parts.has_router; }
std::uint64_t ParallelLayer::workspace_bytes() const noexcept { return state_->pool->capacity_bytes(); }

}  // namespace moecl
