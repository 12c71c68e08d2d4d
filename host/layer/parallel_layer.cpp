#include <moecl/parallel_layer.hpp>
#include <moecl/trace.hpp>

#include <algorithm>

#include "dispatch/share.hpp"
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
          {"hidden", shape.hidden},
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

/// A rank alone exchanges nothing, unless its rows are to be rounded as those of many are.
std::unique_ptr<Strategy> make_strategy(const ExpertRank& rank, const ParallelPlan& plan,
                                        const ExpertProblem& problem) {
  if (rank.ep.size() == 1 && plan.wire == WireFormat::none)
    return Strategy::make_local(rank.ep.rank_stream(), rank.experts, problem);
  return Strategy::make(plan.strategy, plan.replace_allreduce ? rank.with_own_tokens() : rank, problem);
}

/// What a batch under way has of its own.
struct Lane {
  std::unique_ptr<Strategy> strategy;
  SharedGroup group;
  PassMemory memory;

  Lane(const ExpertRank& rank, const ParallelPlan& plan, const ExpertProblem& problem)
      : strategy(make_strategy(rank, plan, problem)), group(rank.tp, plan.shared_sharding) {}
};

}  // namespace

struct ParallelLayer::State {
  ExpertRank rank;
  MoeShape shape;
  ParallelPlan plan;
  LayerParts parts;  ///< whose shape is that of the rank
  ExpertPlaces places;
  LayerPlans plans;
  std::vector<Lane> lanes;

  State(const ExpertRank& of, const ParallelPlan& how, const MoeShape& whole, const MoeWeights& weights,
        const MoeLayerOptions& options, const LoadProgress& progress)
      : rank(of),
        shape(whole),
        plan(how),
        parts(of.ep.rank_stream(), shape_of_rank(of, how.shared_sharding, whole, weights),
              weights_of_rank(of, how.shared_sharding, whole, weights), of.local_experts, options, progress),
        places(of.ep.rank_stream(), how.placement) {
    parts.report.chunk_tokens = options.chunk_tokens;
    const bool beside = exchanges_beside(of, whole, how);
    for (int lane = 0; lane < (how.micro_batch_from_tokens ? 2 : 1); ++lane)
      lanes.emplace_back(beside ? of.beside() : of, plan, problem_of(whole, options, how.wire));
  }

  void forward(const ParallelLayer::Forward& given);
  void run(const MoeForward& args, LayerPass::Part part, std::int32_t batches);
  LayerPass pass(std::int32_t lane, const MoeForward& args, LayerPass::Part part);
  /// Of the rank that has most, where that decides about anything.
  std::int64_t most_tokens(std::int64_t tokens) {
    if (!plan.micro_batch_from_tokens && parts.options.chunk_tokens == 0) return tokens;
    std::int64_t most = 0;
    for (const std::vector<std::int64_t>& theirs : rank.ep.share("most tokens", {tokens}))
      most = std::max(most, theirs.front());
    return most;
  }

  /// How many tokens the dp ranks before this one have. Every rank calls it.
  std::int64_t tokens_before(std::int64_t tokens) const {
    Communicator dp = plan.replace_allreduce ? rank.with_own_tokens().dp : rank.dp;
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
    ranks.share("parallel layer", {}, agreed_by_ranks(rank, plan, shape, options));
    state_ = std::make_unique<State>(rank, plan, shape, weights, options, progress);
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
const MoeShape& ParallelLayer::shape() const noexcept { return state_->shape; }
const MoeLayerOptions& ParallelLayer::options() const noexcept { return state_->parts.options; }
const MoeLayerReport& ParallelLayer::report() const noexcept { return state_->parts.report; }
std::uint64_t ParallelLayer::workspace_bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const Lane& lane : state_->lanes) bytes += lane.memory.capacity_bytes() + lane.strategy->workspace_bytes();
  return bytes;
}

void ParallelLayer::forward(const Forward& args) {
  expect_driver_process();
  const Trace::Span span(state_->rank.ep.rank_stream().trace, "forward");
  state_->rank.ep.together([&] { state_->forward(args); });
}

void ParallelLayer::State::forward(const ParallelLayer::Forward& given) {
  parts.expect_whole();
  const MoeForward args = checked_forward(given, shape, parts.options.dtype, rank.local_experts);
  MoeForward apart = args;
  if (is_in_place(args)) apart.x = {};
  expect_operands_apart(apart);
  const std::int64_t tokens = args.x.shape[0], most = most_tokens(tokens), chunk = parts.options.chunk_tokens;
  const std::int64_t before = places.depends_on_token() ? tokens_before(tokens) : 0;
  // As many chunks on every rank, and micro-batches of each.
  const auto chunks = static_cast<std::int32_t>(chunk == 0 ? 1 : std::max<std::int64_t>((most + chunk - 1) / chunk, 1));
  const std::int32_t batches =
      plan.micro_batch_from_tokens && share_of(most, chunks, 0).count >= *plan.micro_batch_from_tokens ? 2 : 1;
  for (std::int32_t i = 0; i < chunks; ++i) {
    const Share rows = share_of(tokens, chunks, i);
    run(part_of(args, rows.begin, rows.count), {before + rows.begin, i == 0}, batches);
  }
}

LayerPass ParallelLayer::State::pass(std::int32_t lane, const MoeForward& args, LayerPass::Part part) {
  Lane& own = lanes[static_cast<std::size_t>(lane)];
  return {rank.ep.rank_stream(),
          {parts, plans, *own.strategy, &own.memory, places.present() ? &places : nullptr, &own.group},
          args,
          part};
}

/// One after the other on the rank's stream: while rows of one batch travel, the other's kernels run.
void ParallelLayer::State::run(const MoeForward& args, LayerPass::Part part, std::int32_t batches) {
  if (batches == 1) return pass(0, args, part).run();
  const std::int64_t tokens = args.x.shape[0];
  const auto half = [&](std::int32_t i) {
    const Share rows = share_of(tokens, batches, i);
    return pass(i, part_of(args, rows.begin, rows.count), {part.first_token + rows.begin, part.first && i == 0});
  };
  LayerPass halves[] = {half(0), half(1)};
  for (LayerPass& each : halves) each.route();
  for (LayerPass& each : halves) each.run_shared();
  for (LayerPass& each : halves) each.run_experts();
  for (LayerPass& each : halves) each.finish();
}

}  // namespace moecl
