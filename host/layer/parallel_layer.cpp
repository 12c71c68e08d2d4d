#include <moecl/parallel_layer.hpp>
#include <moecl/trace.hpp>

#include <algorithm>

#include "dispatch/share.hpp"
#include "dispatch/step_pool.hpp"
#include "host/layer/forward_args.hpp"
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
  return rank.ep.size() > 1 && (shape.shared_intermediate > 0 || plan.micro_batch_from_tokens);
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
  if (options.rows_per_expert != 0 && rank.ep.size() > 1)
    fail(ErrorCode::unsupported, "parallel layer: rows_per_expert {}: experts have room for all rows that may come",
         options.rows_per_expert);
  for (const OperandQuant& activations : {options.activations, options.shared_activations})
    if (activations.quantized() && activations.group == ScaleGroup::per_tensor() && !activations.static_scale)
      fail(ErrorCode::unsupported,
           "parallel layer: activations as {} would depend on which rows each rank gets; static scales, or those of "
           "each "
           "token, do not",
           describe(activations));
  require(plan.micro_batch_from_tokens.value_or(0) >= 0, "parallel layer: micro-batches from {} tokens",
          plan.micro_batch_from_tokens.value_or(0));
  if (plan.replace_allreduce && rank.tp.size() > 1 && plan.shared_sharding != SharedSharding::replicated)
    fail(ErrorCode::unsupported,
         "parallel layer: where tp ranks have other tokens, each needs the shared experts whole");
  Strategy::expect_possible(plan.strategy, rank, problem_of(shape, options, plan.wire));
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
          {"micro_batch_from_tokens", plan.micro_batch_from_tokens.value_or(-1)},
          {"chunk_tokens", options.chunk_tokens},
          {"dtype", options.dtype},
          {"batched layout", options.layout == ExpertLayout::batched},
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

}  // namespace

struct ParallelLayer::State {
  ExpertRank rank;
  ExpertRank exchanging;  ///< the same, with what tokens it has by itself
  MoeShape shape;
  ParallelPlan plan;
  LayerParts parts;  ///< whose shape is that of the rank
  ExpertPlaces places;
  LayerPlans plans;
  SharedGroup group;
  std::shared_ptr<StepPool> pool;
  std::array<std::array<Strategy*, 4>, StepPool::lanes> strategies = {};  ///< the pool's, of each lane by kind
  std::array<std::unique_ptr<Strategy>, StepPool::lanes> alone;           ///< of a rank that exchanges nothing

  State(const ExpertRank& of, const ParallelPlan& how, const MoeShape& whole, const MoeWeights& weights,
        const MoeLayerOptions& options, const LoadProgress& progress)
      : rank(of),
        exchanging(how.replace_allreduce ? of.with_own_tokens() : of),
        shape(whole),
        plan(how),
        parts(of.ep.rank_stream(), shape_of_rank(of, how.shared_sharding, whole, weights),
              weights_of_rank(of, how.shared_sharding, whole, weights), of.local_experts, options, progress),
        places(of.ep.rank_stream(), how.placement, whole.experts, whole.special_experts()),
        group(exchanging.tp, how.shared_sharding),
        pool(StepPool::of(of.ep)) {
    parts.report.chunk_tokens = options.chunk_tokens;
    // Rows of a rank alone may be rounded as those of many are.
    if (rank.ep.size() == 1 && plan.wire == WireFormat::none)
      for (auto& strategy : alone)
        strategy = Strategy::make_local(rank.ep.rank_stream(), rank.experts, problem_of(shape, options, plan.wire));
  }

  /// How a call is cut.
  struct Cut {
    std::int32_t chunks, batches;  ///< batches of each chunk
  };
  Cut cut(std::int64_t most_tokens) const;
  Strategy& strategy(std::size_t lane, StrategyKind kind);
  /// Of a batch of at most so many tokens on each rank.
  std::uint64_t batch_bytes(std::int64_t tokens, StrategyKind kind);
  std::uint64_t workspace_bytes(const Step& step);

  void forward(const MoeForward& given, const Step& step, WaitList wait);
  /// Errors: unsupported; invalid_argument
  void expect_possible(const MoeForward& given, const Step& step) const;
  void run(const MoeForward& args, const Step& step, LayerPass::Part part, std::int32_t batches);
  LayerPass pass(std::size_t lane, const MoeForward& args, const Step& step, LayerPass::Part part);
  /// Of the rank that has most, where that decides about anything.
  std::int64_t most_tokens(std::int64_t tokens, const Step& step) {
    if (step.max_tokens_across_dp) {
      require(tokens <= *step.max_tokens_across_dp, "forward: {} tokens are more than max_tokens_across_dp, {}", tokens,
              *step.max_tokens_across_dp);
      return *step.max_tokens_across_dp;
    }
    if (!plan.micro_batch_from_tokens && parts.options.chunk_tokens == 0) return tokens;
    std::int64_t most = 0;
    for (const std::vector<std::int64_t>& theirs : rank.ep.share("most tokens", {tokens}))
      most = std::max(most, theirs.front());
    return most;
  }

  /// How many tokens the dp ranks before this one have. Every rank calls it.
  std::int64_t tokens_before(std::int64_t tokens) const {
    Communicator dp = exchanging.dp;
    const auto all = dp.share("tokens before", {tokens});
    std::int64_t before = 0;
    for (std::int32_t d = 0; d < dp.rank(); ++d) before += all[static_cast<std::size_t>(d)][0];
    return before;
  }
};

ParallelLayer::ParallelLayer(const ExpertRank& rank, const ParallelPlan& plan, const MoeShape& shape,
                             const MoeWeights& weights, const MoeLayerOptions& options, const LoadProgress& progress) {
  Communicator ranks = rank.ep;
  ranks.together([&] {
    expect_possible(rank, plan, shape, options);
    // A rank without experts does not know what the router stands beside.
    MoeLayerOptions agreed = options;
    const std::int64_t in_f32 = router_dtype(weights, options) == DType::f32 ? 1 : 0;
    for (const auto& theirs : ranks.share("parallel layer", {in_f32}, agreed_by_ranks(rank, plan, shape, options)))
      if (theirs.front() == 1) agreed.router_dtype = DType::f32;
    state_ = std::make_unique<State>(rank, plan, shape, weights, agreed, progress);
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
const MoeShape& ParallelLayer::shape() const noexcept { return state_->shape; }
const MoeLayerOptions& ParallelLayer::options() const noexcept { return state_->parts.options; }
const MoeLayerReport& ParallelLayer::report() const noexcept { return state_->parts.report; }
bool ParallelLayer::has_router() const noexcept { return state_->parts.has_router; }
std::uint64_t ParallelLayer::workspace_bytes() const noexcept { return state_->pool->capacity_bytes(); }

std::uint64_t ParallelLayer::workspace_bytes(const Step& step) const { return state_->workspace_bytes(step); }

void ParallelLayer::forward(const Forward& args, const Step& step, Submit submit) {
  expect_driver_process();
  const StreamView stream = state_->rank.ep.rank_stream();
  const Trace::Span span(stream.trace, "forward");
  state_->rank.ep.together([&] {
    state_->forward(args, step, submit.wait);
    enqueue_marker(stream, {{}, submit.done});
  });
}

Strategy& ParallelLayer::State::strategy(std::size_t lane, StrategyKind kind) {
  if (alone[lane] != nullptr) return *alone[lane];
  Strategy*& known = strategies[lane][static_cast<std::size_t>(kind)];
  if (known == nullptr)
    known = &pool->strategy(lane, kind, exchanging, exchanges_beside(rank, shape, plan),
                            problem_of(shape, parts.options, plan.wire));
  return *known;
}

ParallelLayer::State::Cut ParallelLayer::State::cut(std::int64_t most) const {
  const std::int64_t chunk = parts.options.chunk_tokens;
  const auto chunks = static_cast<std::int32_t>(chunk == 0 ? 1 : std::max<std::int64_t>((most + chunk - 1) / chunk, 1));
  const bool two = plan.micro_batch_from_tokens && share_of(most, chunks, 0).count >= *plan.micro_batch_from_tokens;
  return {chunks, two ? 2 : 1};
}

std::uint64_t ParallelLayer::State::batch_bytes(std::int64_t tokens, StrategyKind kind) {
  const Strategy& of = strategy(0, kind);
  const PassLayout layout(parts, of, tokens, places.present(), &group);
  const StepBytes step = of.bytes(std::vector<std::int64_t>(static_cast<std::size_t>(rank.ep.size()), tokens));
  WorkspaceLayout experts;
  if (!layout.experts) Experts::Layout(experts, parts.experts, step.source_rows, step.rows);
  return layout.bytes() + step.workspace + experts.total_bytes();
}

std::uint64_t ParallelLayer::State::workspace_bytes(const Step& step) {
  require(step.max_tokens_across_dp && *step.max_tokens_across_dp >= 0,
          "workspace: its size depends on max_tokens_across_dp, which the step does not say");
  const StrategyKind kind = step.strategy.value_or(plan.strategy);
  const Cut cuts = cut(*step.max_tokens_across_dp);
  const std::int64_t most = share_of(share_of(*step.max_tokens_across_dp, cuts.chunks, 0).count, cuts.batches, 0).count;
  // A rest of a few tokens in one launch may need more than a whole batch.
  const std::int64_t rest = alone[0] != nullptr ? std::min(most, one_launch_tokens(parts)) : most;
  return static_cast<std::uint64_t>(cuts.batches) * std::max(batch_bytes(most, kind), batch_bytes(rest, kind));
}

void ParallelLayer::State::expect_possible(const MoeForward& given, const Step& step) const {
  require(given.x.present() || shape.shared_intermediate == 0 || !group.meets(),
          "x: absent, but the ranks of a tp group exchange what the shared experts make of it");
  if (!given.expert_rows.present() || alone[0] != nullptr) return;
  const bool over_nodes = *step.strategy == StrategyKind::mc2 && rank.peers.size() > 1;
  if (combine_form(*step.strategy, parts.options.dtype, plan.wire) != CombineForm::rows || exchanging.tp.size() > 1 ||
      over_nodes)
    fail(ErrorCode::unsupported,
         "expert_rows: {} of {} brings sums home, not rows; all2all_v without tp groups brings rows, mc2 on one node "
         "those of f32",
         name(*step.strategy), name(parts.options.dtype));
}

void ParallelLayer::State::forward(const MoeForward& given, const Step& asked, WaitList wait) {
  parts.expect_whole();
  const MoeForward args = checked_forward(given, shape, parts, rank.local_experts);
  Step step = asked;
  step.strategy = asked.strategy.value_or(plan.strategy);
  expect_possible(given, step);
  std::uint64_t needed = 0;
  if (args.workspace.handle != nullptr) {
    needed = workspace_bytes(step);
    require(args.workspace.size_bytes >= needed, "workspace: a step of at most {} tokens needs {} bytes, got {}",
            *step.max_tokens_across_dp, needed, args.workspace.size_bytes);
    require(args.workspace.offset_bytes % sizeof(float) == 0, "workspace: byte offset {} is no multiple of {}",
            args.workspace.offset_bytes, sizeof(float));
  }
  MoeForward apart = args;
  if (is_in_place(args)) apart.x = {};
  expect_operands_apart(apart, needed == 0 ? BufferView() : args.workspace.slice(0, needed));
  const std::int64_t tokens = args.x.shape[0], most = most_tokens(tokens, step);
  const std::int64_t before = places.depends_on_token() ? tokens_before(tokens) : 0;
  enqueue_marker(rank.ep.rank_stream(), {wait, nullptr});
  // As many chunks on every rank, and micro-batches of each.
  const Cut cuts = cut(most);
  for (std::int32_t i = 0; i < cuts.chunks; ++i) {
    const Share rows = share_of(tokens, cuts.chunks, i);
    MoeForward chunk = part_of(args, rows.begin, rows.count);
    if (needed != 0) chunk.workspace = args.workspace.slice(0, needed);
    run(chunk, step, {before + rows.begin, i == 0}, cuts.batches);
  }
}

LayerPass ParallelLayer::State::pass(std::size_t lane, const MoeForward& args, const Step& step, LayerPass::Part part) {
  return {rank.ep.rank_stream(),
          {parts, plans, strategy(lane, *step.strategy), &pool->memory(lane), places.present() ? &places : nullptr,
           &group, step, step.reduce_results || exchanging.tp.rank() == 0},
          args,
          part};
}

/// One after the other on the rank's stream: while rows of one batch travel, the other's kernels run.
void ParallelLayer::State::run(const MoeForward& args, const Step& step, LayerPass::Part part, std::int32_t batches) {
  if (batches == 1) return pass(0, args, step, part).run();
  const std::int64_t tokens = args.x.shape[0];
  const auto half = [&](std::int32_t i) {
    const Share rows = share_of(tokens, batches, i);
    MoeForward batch = part_of(args, rows.begin, rows.count);
    const std::uint64_t bytes = args.workspace.size_bytes / static_cast<std::uint64_t>(batches);
    if (args.workspace.handle != nullptr)
      batch.workspace = args.workspace.slice(static_cast<std::uint64_t>(i) * bytes, bytes);
    return pass(static_cast<std::size_t>(i), batch, step, {part.first_token + rows.begin, part.first && i == 0});
  };
  LayerPass halves[] = {half(0), half(1)};
  for (LayerPass& each : halves) each.route();
  for (LayerPass& each : halves) each.run_shared();
  for (LayerPass& each : halves) each.run_experts();
  for (LayerPass& each : halves) each.finish();
}

}  // namespace moecl
