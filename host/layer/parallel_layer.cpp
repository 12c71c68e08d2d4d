#include <moecl/parallel_layer.hpp>
#include <moecl/trace.hpp>

#include <algorithm>

#include "dispatch/share.hpp"
#include "host/layer/forward_args.hpp"
#include "host/layer/micro_batch.hpp"
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
  if (options.layout != ExpertLayout::standard)
    fail(ErrorCode::unsupported, "parallel layer: the batched layout is for one rank");
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
  Strategy::expect_possible(plan.strategy, rank,
                            {shape.hidden, shape.router.top_k, options.dtype, plan.wire, options.activations});
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

ParallelLayer::Forward part_of(const ParallelLayer::Forward& args, Share rows) {
  using Forward = ParallelLayer::Forward;
  Forward part = args;
  for (TensorView Forward::*view : {&Forward::x, &Forward::out, &Forward::finished, &Forward::router_logits,
                                    &Forward::topk_ids, &Forward::topk_weights, &Forward::routed_out})
    part.*view = rows_or_absent(args.*view, rows.begin, rows.count);
  return part;
}

/// As forward lets `out` be.
bool in_place(const ParallelLayer::Forward& args) {
  return args.x.buffer.handle == args.out.buffer.handle && args.x.buffer.offset_bytes == args.out.buffer.offset_bytes &&
         args.x.dtype == args.out.dtype && args.x.stride == args.out.stride;
}

}  // namespace

struct ParallelLayer::State {
  ExpertRank rank;
  MoeShape shape;
  ParallelPlan plan;
  LayerParts parts;  ///< whose shape is that of the rank
  ExpertPlaces places;
  std::vector<std::unique_ptr<MicroBatch>> batches;

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
    for (int batch = 0; batch < (how.micro_batch_from_tokens ? 2 : 1); ++batch)
      batches.push_back(std::make_unique<MicroBatch>(beside ? of.beside() : of, plan, parts, places));
  }

  void forward(const Forward& given);
  void run(const Forward& args, std::int64_t first_token, std::int32_t count);
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
  for (const auto& batch : state_->batches) bytes += batch->workspace_bytes();
  return bytes;
}

void ParallelLayer::forward(const Forward& args) {
  expect_driver_process();
  const Trace::Span span(state_->rank.ep.rank_stream().trace, "forward");
  state_->rank.ep.together([&] { state_->forward(args); });
}

void ParallelLayer::State::forward(const Forward& given) {
  parts.expect_whole();
  const Forward args = checked_forward(given, shape, parts.options.dtype);
  Forward apart = args;
  if (in_place(args)) apart.x = {};
  expect_operands_apart(apart);
  const std::int64_t tokens = args.x.shape[0], most = most_tokens(tokens), chunk = parts.options.chunk_tokens;
  const std::int64_t before = places.depends_on_token() ? tokens_before(tokens) : 0;
  // As many chunks on every rank, and micro-batches of each.
  const auto chunks = static_cast<std::int32_t>(chunk == 0 ? 1 : std::max<std::int64_t>((most + chunk - 1) / chunk, 1));
  const std::int32_t count =
      plan.micro_batch_from_tokens && share_of(most, chunks, 0).count >= *plan.micro_batch_from_tokens ? 2 : 1;
  for (std::int32_t i = 0; i < chunks; ++i) {
    const Share rows = share_of(tokens, chunks, i);
    run(part_of(args, rows), before + rows.begin, count);
  }
}

/// One after the other on the rank's stream: while rows of one batch travel, the other's kernels run.
void ParallelLayer::State::run(const Forward& args, std::int64_t first_token, std::int32_t count) {
  for (std::int32_t i = 0; i < count; ++i) {
    const Share rows = share_of(args.x.shape[0], count, i);
    batches[static_cast<std::size_t>(i)]->route(part_of(args, rows), first_token + rows.begin);
  }
  for (std::int32_t i = 0; i < count; ++i) batches[static_cast<std::size_t>(i)]->run_shared();
  for (std::int32_t i = 0; i < count; ++i) batches[static_cast<std::size_t>(i)]->run_experts();
  for (std::int32_t i = 0; i < count; ++i) batches[static_cast<std::size_t>(i)]->finish();
}

}  // namespace moecl
