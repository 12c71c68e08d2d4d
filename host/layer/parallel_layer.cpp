#include <moecl/parallel_layer.hpp>
#include <moecl/trace.hpp>

#include <algorithm>
#include <numeric>

#include "dispatch/put_window.hpp"
#include "dispatch/step_pool.hpp"
#include "dispatch/strategies/gathered_choices.hpp"
#include "host/layer/expert_pass.hpp"
#include "host/layer/forward_args.hpp"
#include "host/layer/layer_assembly.hpp"
#include "host/layer/layer_pass.hpp"
#include "host/layer/rank_weights.hpp"
#include "runtime/driver_process.hpp"

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

/// Exchanges run beside the rank's stream where something can run meanwhile.
bool exchanges_beside(const ExpertRank& rank, const MoeShape& shape, const ParallelPlan& plan) {
  return rank.ep.size() > 1 &&
         (shape.shared_intermediate > 0 || plan.dbo_decode_token_threshold || plan.dbo_prefill_token_threshold);
}

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

/// Whatever ranks must have alike, so that tokens find their experts and sums mean one layer.
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

/// By all ranks, which agree about all else too.
std::optional<DType> agreed_router_dtype(const ExpertRank& rank, const ParallelPlan& plan, const MoeShape& shape,
                                         const MoeLayerOptions& options, DType alone) {
  expect_possible(rank, plan, shape, options);
  Communicator ranks = rank.ep;
  // A rank without experts does not know what the router stands beside.
  for (const auto& theirs :
       ranks.share("parallel layer", {alone == DType::f32 ? 1 : 0}, agreed_by_ranks(rank, plan, shape, options)))
    if (theirs.front() == 1) return DType::f32;
  return options.router_dtype;
}

}  // namespace

/// What prefetches go through, on a queue of their own.
struct ParallelLayer::Ahead {
  ExpertRank rank;
  std::int64_t most_rows = 0;  ///< more fit the slots of no rank; 0: no rank has a budget
  StepMemory memory;
  LayerPlans plans;
  GatheredChoices choices;

  /// By all ranks.
  Ahead(const ExpertRank& of, std::int32_t top_k, const Experts& experts)
      : rank(of.beside()), choices(rank, top_k, memory) {
    for (const auto& theirs : rank.ep.share("prefetch", {experts.limited() ? experts.resident() : 0}))
      most_rows = std::max(most_rows, theirs.front());
  }
  Ahead(const Ahead&) = delete;
  Ahead& operator=(const Ahead&) = delete;
  /// What is under way has its memory here.
  ~Ahead() {
    try {
      rank.ep.stream().finish();
    } catch (const Error&) {  // of a device that failed nothing is
    }
  }
};

struct ParallelLayer::State {
  ExpertRank rank;
  ExpertRank exchanging;  ///< the same, with what tokens it has by itself
  MoeShape shape;
  ParallelPlan plan;
  std::optional<DType> router_dtype;  ///< as it was asked for; `parts` has what ranks agreed about
  ExpertPlaces places;
  LayerPlans plans;
  ExpertPassPlans expert_plans;
  SharedGroup group;
  std::shared_ptr<StepPool> pool;
  StrategyChoice last;                                                    ///< of passes
  std::array<std::array<Strategy*, 4>, StepPool::lanes> strategies = {};  ///< the pool's, of each lane by kind
  std::array<std::unique_ptr<Strategy>, StepPool::lanes> alone;           ///< of a rank that exchanges nothing
  LayerParts parts;  ///< whose shape is that of the rank. The last to be made, since it is taken once nothing can fail
  std::unique_ptr<Ahead> ahead;  ///< since the first prefetch

  /// @param of_rank  Left alone by a constructor that throws
  State(const ExpertRank& of, const ParallelPlan& how, const MoeShape& whole, std::optional<DType> router,
        LayerParts&& of_rank)
      : rank(of),
        exchanging(how.replace_allreduce ? of.with_own_tokens() : of),
        shape(whole),
        plan(how),
        router_dtype(router),
        places(places_of(of, how, whole)),
        group(of, how.shared_sharding, how.replace_allreduce),
        pool(StepPool::of(of.ep)),
        last(plan.rules ? StrategyChoice() : choose({}, 0)),
        alone(alone_of(of, how, whole, of_rank.options)),
        parts(std::move(of_rank)) {
    parts.report.chunk_tokens = parts.options.chunk_tokens;
  }
  static ExpertPlaces places_of(const ExpertRank& of, const ParallelPlan& how, const MoeShape& whole) {
    const StreamView stream = of.ep.rank_stream();
    if (how.placement.logical_of.empty()) return {stream, {}, whole.experts, whole.special_experts()};
    return {stream, how.placement, table_of(of, how), how.lost, whole.special_experts()};
  }
  static ReplicaTable table_of(const ExpertRank& of, const ParallelPlan& how) {
    return replica_table(how.placement, how.replicas, of.ep.rank(), of.ep.size(), how.loads);
  }
  /// Rows of a rank alone may be rounded as those of many are.
  static std::array<std::unique_ptr<Strategy>, StepPool::lanes> alone_of(const ExpertRank& of, const ParallelPlan& how,
                                                                         const MoeShape& whole,
                                                                         const MoeLayerOptions& options) {
    std::array<std::unique_ptr<Strategy>, StepPool::lanes> alone;
    if (of.ep.size() == 1 && how.wire == WireFormat::none)
      for (auto& strategy : alone)
        strategy = Strategy::make_local(of.ep.rank_stream(), of.experts, problem_of(whole, options, how.wire));
    return alone;
  }

  /// Errors: invalid_argument  the plan has an expert at a place of this rank that has no memory
  void expect_memory_for(const PlacementPlan& placement, const ExpertRank& of) const {
    require(places_of_experts(of, placement) <= parts.local_experts(),
            "placement: rank {} has memory for {} experts, and one at its place {}", of.ep.rank(),
            parts.local_experts(), places_of_experts(of, placement) - 1);
  }

  /// How a call is cut.
  struct Cut {
    std::int32_t chunks, batches;  ///< batches of each chunk
  };
  Cut cut(const Step& step, std::int64_t most_tokens) const;
  StrategyChoice choose(const Step& step, std::int64_t most_tokens) const;
  Strategy& strategy(std::size_t lane, StrategyKind kind);
  /// Of a batch of at most so many tokens on each rank.
  std::uint64_t batch_bytes(std::int64_t tokens, StrategyKind kind);
  std::uint64_t workspace_bytes(const Step& step);

  /// What else ranks have alike that make a pass of this layer.
  std::vector<Agreed> agreed_about_layer(const MoeForward& args) const {
    std::vector<Agreed> agreed = {
        {"hidden", shape.hidden}, {"top_k", shape.router.top_k}, {"experts", rank.experts}, {"wire", plan.wire}};
    if (group.adds_parts())
      agreed.emplace_back("routed or shared part apart", args.routed_out.present() || args.shared_out.present());
    return agreed;
  }
  /// With the step's mask, and as much of the workspace as is needed.
  MoeForward checked(const MoeForward& given, const Step& step);
  /// Errors: unsupported  rows of experts that do not come home
  void expect_rows_home(const MoeForward& args, StrategyKind kind) const;
  /// @param args  checked
  void forward(const MoeForward& args, const AgreedStep& step, Submit submit);
  void prefetch(const MoeInputs& tokens, Submit submit);
  struct Batch;
  void run(const MoeForward& args, const Batch& batch, std::int32_t batches);
  LayerPass pass(std::size_t lane, const MoeForward& args, const Batch& batch);
};

/// A chunk of a pass, or a micro-batch of a chunk.
struct ParallelLayer::State::Batch {
  Step step;                                  ///< with the strategy that was chosen
  std::int64_t first_token = 0;               ///< as in LayerPass::Part
  bool first = true;                          ///< the same
  std::vector<std::int64_t> tokens_of_ranks;  ///< of this batch
  std::int64_t max_tokens = 0;                ///< on any rank; also where the step bounds them

  /// Of all ranks, those of a tp group once; of a bounded step as many as there can be.
  std::int64_t tokens_of_all(std::int64_t tp) const {
    const auto ranks = static_cast<std::int64_t>(tokens_of_ranks.size()) / tp;
    return step.max_tokens_across_dp ? max_tokens * ranks : tokens_brought(tp);
  }
  /// Those that are there.
  std::int64_t tokens_brought(std::int64_t tp) const {
    return std::accumulate(tokens_of_ranks.begin(), tokens_of_ranks.end(), std::int64_t{0}) / tp;
  }

  /// One of `parts`, of the tokens of rank r.
  Batch part(std::int32_t parts, std::int32_t index, std::int32_t r) const {
    Batch part = *this;
    part.first_token += share_of(tokens_of_ranks[static_cast<std::size_t>(r)], parts, index).begin;
    part.first = first && index == 0;
    for (std::int64_t& tokens : part.tokens_of_ranks) tokens = share_of(tokens, parts, index).count;
    part.max_tokens = share_of(max_tokens, parts, 0).count;
    return part;
  }
};

ParallelLayer::ParallelLayer(const ExpertRank& rank, const ParallelPlan& plan, const MoeShape& shape,
                             const MoeWeights& weights, const MoeLayerOptions& options, const LoadProgress& progress) {
  Communicator ranks = rank.ep;
  ranks.together([&] {
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
  Communicator ranks = rank.ep;
  ranks.together([&] {
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
    if (of.ahead != nullptr) of.ahead->rank.ep.join();  // it reads the old table
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
  Communicator ranks = rank.ep;
  return ranks.together([&] {
    require(rank.local_experts == old.rank.local_experts && rank.sharding == old.rank.sharding &&
                rank.ep.rank_stream().device == old.rank.ep.rank_stream().device,
            "in_group: {} places here, the layer has {}, or another device or sharding", rank.local_experts,
            old.rank.local_experts);
    require(rank.sharding == ExpertSharding::experts, "in_group: ranks have parts of every expert");
    require(plan.shared_sharding != SharedSharding::intermediate ||
                (rank.tp.size() == old.rank.tp.size() && rank.tp.rank() == old.rank.tp.rank()),
            "in_group: rank {} of {} of a tp group takes the shared experts' part of rank {} of {}", rank.tp.rank(),
            rank.tp.size(), old.rank.tp.rank(), old.rank.tp.size());
    // As if the layer were made now: other ranks may do that.
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

std::uint64_t ParallelLayer::workspace_bytes(const Step& step) const { return state_->workspace_bytes(step); }

void ParallelLayer::forward(const Forward& args, const Step& step, Submit submit) {
  expect_driver_process();
  State& of = *state_;
  const Trace::Span span(of.rank.ep.rank_stream().trace, "forward");
  of.rank.ep.together([&] {
    // What this rank alone is refused is so before the others hear of the step.
    const MoeForward checked = of.checked(args, step);
    Step all = step;
    if (!all.strategy && !of.plan.rules) all.strategy = of.plan.strategy;
    of.forward(checked, AgreedStep(of.exchanging, all, checked.x.shape[0], of.agreed_about_layer(checked)), submit);
  });
}

void ParallelLayer::forward(const Forward& args, const AgreedStep& step, Submit submit) {
  expect_driver_process();
  State& of = *state_;
  const Trace::Span span(of.rank.ep.rank_stream().trace, "forward");
  of.rank.ep.together([&] {
    step.expect_of(of.exchanging);
    of.forward(of.checked(args, step.step()), step, submit);
  });
}

void ParallelLayer::prefetch(const MoeInputs& tokens, Submit submit) {
  expect_driver_process();
  state_->rank.ep.together([&] { state_->prefetch(tokens, submit); });
}

void ParallelLayer::forward_experts(const ExpertRows& rows, Submit submit) {
  state_->parts.expect_whole();
  run_expert_pass(state_->rank.ep.rank_stream(), state_->parts, state_->expert_plans, rows, submit);
}
std::uint64_t ParallelLayer::expert_workspace_bytes(std::int64_t rows, std::int64_t slots) const {
  return expert_pass_bytes(state_->parts, rows, slots);
}

AgreedStep ParallelLayer::agree(const Step& step, std::int64_t tokens) const {
  return AgreedStep(state_->exchanging, step, tokens);
}

const StrategyChoice& ParallelLayer::last_strategy() const noexcept { return state_->last; }

StrategyChoice ParallelLayer::State::choose(const Step& step, std::int64_t most_tokens) const {
  SelectStrategy problem{rank.ep.size(), exchanging.tp.size(), most_tokens};
  problem.ranks_per_node = rank.node.size();
  problem.wanted = step.strategy;
  if (!plan.rules) problem.wanted = step.strategy.value_or(plan.strategy);
  if (!problem.wanted) {
    problem.sharding = rank.sharding;
    problem.rules = *plan.rules;
    problem.experts = shape.experts;
    problem.top_k = shape.router.top_k;
    problem.put_windows = PutWindow::reject(rank.ep).empty();
  }
  return select_strategy(problem);
}

Strategy& ParallelLayer::State::strategy(std::size_t lane, StrategyKind kind) {
  if (alone[lane] != nullptr) return *alone[lane];
  Strategy*& known = strategies[lane][static_cast<std::size_t>(kind)];
  if (known == nullptr)
    known = &pool->strategy(lane, kind, exchanging, exchanges_beside(rank, shape, plan),
                            problem_of(shape, parts.options, plan.wire));
  return *known;
}

ParallelLayer::State::Cut ParallelLayer::State::cut(const Step& step, std::int64_t most) const {
  const std::int64_t chunk = parts.options.chunk_tokens;
  const auto chunks = static_cast<std::int32_t>(chunk == 0 ? 1 : std::max<std::int64_t>((most + chunk - 1) / chunk, 1));
  const auto& threshold = step.uniform_decode ? plan.dbo_decode_token_threshold : plan.dbo_prefill_token_threshold;
  const bool two = threshold && share_of(most, chunks, 0).count >= *threshold;
  return {chunks, step.micro_batches.value_or(two ? 2 : 1)};
}

std::uint64_t ParallelLayer::State::batch_bytes(std::int64_t tokens, StrategyKind kind) {
  const Strategy& of = strategy(0, kind);
  const std::vector<std::int64_t> of_ranks(static_cast<std::size_t>(rank.ep.size()), tokens);
  const PassLayout layout(parts, of, tokens, places.present(), &group, group.tokens(of_ranks, tokens));
  const StepBytes step = of.bytes(of_ranks);
  WorkspaceLayout experts;
  if (!layout.experts) Experts::Layout(experts, parts.experts, step.source_rows, step.rows);
  return layout.bytes() + step.workspace + experts.total_bytes();
}

std::uint64_t ParallelLayer::State::workspace_bytes(const Step& step) {
  require(step.max_tokens_across_dp && *step.max_tokens_across_dp >= 0,
          "workspace: its size depends on max_tokens_across_dp, which the step does not say");
  const StrategyKind kind = choose(step, *step.max_tokens_across_dp).kind;
  const Cut cuts = cut(step, *step.max_tokens_across_dp);
  const std::int64_t most = share_of(share_of(*step.max_tokens_across_dp, cuts.chunks, 0).count, cuts.batches, 0).count;
  // A rest of a few tokens in one launch may need more than a whole batch.
  const std::int64_t rest = alone[0] != nullptr ? std::min(most, one_launch_tokens(parts)) : most;
  return static_cast<std::uint64_t>(cuts.batches) * std::max(batch_bytes(most, kind), batch_bytes(rest, kind));
}

MoeForward ParallelLayer::State::checked(const MoeForward& given, const Step& step) {
  parts.expect_whole();
  MoeForward args = checked_forward(given, shape, parts, rank.local_experts);
  require(given.x.present() || shape.shared_intermediate == 0 || !group.meets(),
          "x: absent, but the ranks of a tp group exchange what the shared experts make of it");
  if (!plan.rules || step.strategy) expect_rows_home(args, step.strategy.value_or(plan.strategy));
  if (!args.finished.present() && !args.ids.present()) args.finished = step.finished;
  if (args.workspace.handle != nullptr) {
    const std::uint64_t needed = workspace_bytes(step);
    require(args.workspace.size_bytes >= needed, "workspace: a step of at most {} tokens needs {} bytes, got {}",
            *step.max_tokens_across_dp, needed, args.workspace.size_bytes);
    require(args.workspace.offset_bytes % sizeof(float) == 0, "workspace: byte offset {} is no multiple of {}",
            args.workspace.offset_bytes, sizeof(float));
    args.workspace = args.workspace.slice(0, needed);
  }
  MoeForward apart = args;
  if (is_in_place(args)) apart.x = {};
  expect_operands_apart(apart, args.workspace);
  return args;
}

void ParallelLayer::State::expect_rows_home(const MoeForward& args, StrategyKind kind) const {
  if (!args.expert_rows.present() || alone[0] != nullptr) return;
  const bool over_nodes = kind == StrategyKind::mc2 && rank.peers.size() > 1;
  if (combine_form(kind, parts.options.dtype, plan.wire) != CombineForm::rows || exchanging.tp.size() > 1 || over_nodes)
    fail(ErrorCode::unsupported,
         "expert_rows: {} of {} brings sums home, not rows; all2all_v without tp groups brings rows, mc2 on one node "
         "those of f32",
         name(kind), name(parts.options.dtype));
}

void ParallelLayer::State::forward(const MoeForward& args, const AgreedStep& agreed, Submit submit) {
  const std::int64_t tokens = args.x.shape[0];
  require(tokens == agreed.tokens(), "forward: x has {} tokens, the step {}", tokens, agreed.tokens());
  Batch all{agreed.step(), agreed.tokens_before(), true, agreed.tokens_of_ranks(), agreed.max_tokens()};
  last = choose(all.step, all.max_tokens);
  all.step.strategy = last.kind;
  expect_rows_home(args, last.kind);
  const StreamView stream = rank.ep.rank_stream();
  enqueue_marker(stream, {submit.wait, nullptr});
  // As many chunks on every rank, and micro-batches of each.
  const Cut cuts = cut(all.step, all.max_tokens);
  for (std::int32_t i = 0; i < cuts.chunks; ++i) {
    const Share rows = share_of(tokens, cuts.chunks, i);
    MoeForward chunk = part_of(args, rows.begin, rows.count);
    chunk.workspace = args.workspace;
    run(chunk, all.part(cuts.chunks, i, rank.ep.rank()), cuts.batches);
  }
  enqueue_marker(stream, {{}, submit.done});
}

void ParallelLayer::State::prefetch(const MoeInputs& tokens, Submit submit) {
  parts.expect_whole();
  const MoeForward args = checked_prefetch(tokens, shape, parts);
  if (ahead == nullptr) ahead = std::make_unique<Ahead>(exchanging, shape.router.top_k, parts.experts);
  ahead->rank.ep.fork();
  const StreamView stream = ahead->rank.ep.stream();
  enqueue_marker(stream, {submit.wait, nullptr});
  if (ahead->most_rows > 0) {
    const AgreedStep step(ahead->rank, {}, args.x.shape[0], agreed_about_layer(args));
    Batch all{step.step(), step.tokens_before(), true, step.tokens_of_ranks(), step.max_tokens()};
    const std::int64_t brought = all.tokens_brought(exchanging.tp.size());
    if (brought * shape.router.top_k <= ahead->most_rows)
      return LayerPass(stream,
                       {parts, ahead->plans, ahead->choices, &ahead->memory, places.present() ? &places : nullptr},
                       args, {all.first_token, true, &all.tokens_of_ranks, 0, brought, brought})
          .prefetch({{}, submit.done});
  }
  enqueue_marker(stream, {{}, submit.done});
  if (submit.done != nullptr) stream.flush();
}

LayerPass ParallelLayer::State::pass(std::size_t lane, const MoeForward& args, const Batch& batch) {
  const bool bounded = batch.step.max_tokens_across_dp.has_value();
  return {rank.ep.rank_stream(),
          {parts, plans, strategy(lane, *batch.step.strategy), &pool->memory(lane),
           places.present() ? &places : nullptr, &group, batch.step, exchanging.tp.rank() == 0},
          args,
          {batch.first_token, batch.first, &batch.tokens_of_ranks,
           bounded ? share_of(batch.max_tokens, exchanging.tp.size(), 0).count : 0,
           batch.tokens_of_all(exchanging.tp.size()), batch.tokens_brought(exchanging.tp.size())}};
}

/// One after the other on the rank's stream: while rows of one batch travel, the other's kernels run.
void ParallelLayer::State::run(const MoeForward& args, const Batch& batch, std::int32_t batches) {
  if (batches == 1) return pass(0, args, batch).run();
  const std::int64_t tokens = args.x.shape[0];
  const Batch parts_of[] = {batch.part(2, 0, rank.ep.rank()), batch.part(2, 1, rank.ep.rank())};
  const auto half = [&](std::int32_t i) {
    const Share rows = share_of(tokens, batches, i);
    MoeForward some = part_of(args, rows.begin, rows.count);
    const std::uint64_t bytes = args.workspace.size_bytes / static_cast<std::uint64_t>(batches);
    if (args.workspace.handle != nullptr)
      some.workspace = args.workspace.slice(static_cast<std::uint64_t>(i) * bytes, bytes);
    return pass(static_cast<std::size_t>(i), some, parts_of[i]);
  };
  LayerPass halves[] = {half(0), half(1)};
  for (LayerPass& each : halves) each.route();
  for (LayerPass& each : halves) each.run_shared();
  for (LayerPass& each : halves) each.run_experts();
  for (LayerPass& each : halves) each.finish();
}

}  // namespace moecl
