#include <moecl/combine.hpp>
#include <moecl/index_vectors.hpp>
#include <moecl/parallel_layer.hpp>
#include <moecl/trace.hpp>

#include <algorithm>

#include "host/expert_places.hpp"
#include "host/layer_parts.hpp"
#include "host/scratch.hpp"
#include "host/weight_shard.hpp"
#include "host/weighted_input.hpp"
#include "runtime/check.hpp"

namespace moecl {

namespace {

/// The rank's part of every expert's intermediate size: whole groups that share a scale, as evenly as they go.
Share part_of(const ExpertRank& rank, const MoeShape& shape, const MoeWeights& weights) {
  if (rank.sharding == ExpertSharding::experts) return {0, shape.intermediate};
  const std::int64_t unit = weights.experts.empty() ? 1 : intermediate_unit(weights.experts.front());
  const std::int64_t units = (shape.intermediate + unit - 1) / unit;
  require(
      units >= rank.ep.size(),
      "parallel layer: an intermediate size of {} is too small for {} ranks, each with whole units of {} (what shares "
      "a scale)",
      shape.intermediate, rank.ep.size(), unit);
  const Share mine = share_of(units, rank.ep.size(), rank.ep.rank());
  const std::int64_t begin = mine.begin * unit;
  return {begin, std::min(mine.count * unit, shape.intermediate - begin)};
}

MoeShape shape_here(const ExpertRank& rank, MoeShape shape, const MoeWeights& weights) {
  shape.intermediate = part_of(rank, shape, weights).count;
  return shape;
}

MoeWeights weights_here(const ExpertRank& rank, const MoeShape& shape, MoeWeights weights) {
  const Share part = part_of(rank, shape, weights);
  if (rank.sharding == ExpertSharding::intermediate)
    for (ExpertMatrices& expert : weights.experts) expert = intermediate_part(expert, shape.intermediate, part);
  return weights;
}

/// How many tokens the dp ranks before this one have. Every rank calls it.
std::int64_t tokens_before(const ExpertRank& rank, std::int64_t tokens) {
  const auto all = Communicator(rank.dp).share("tokens before", {tokens});
  std::int64_t before = 0;
  for (std::int32_t d = 0; d < rank.dp.rank(); ++d) before += all[static_cast<std::size_t>(d)][0];
  return before;
}

}  // namespace

struct ParallelLayer::State {
  ExpertRank rank;
  MoeShape shape;
  LayerParts parts;  ///< whose shape is that of the rank's experts
  ExpertPlaces places;
  std::unique_ptr<Strategy> strategy;
  Workspace token_memory, row_memory;

  State(const ExpertRank& of, const ParallelPlan& plan, const MoeShape& whole, const MoeWeights& weights,
        const MoeLayerOptions& options, const LoadProgress& progress)
      : rank(of),
        shape(whole),
        parts(of.ep.stream(), shape_here(of, whole, weights), weights_here(of, whole, weights), of.local_experts,
              options, progress),
        places(of.ep.stream(), plan.placement),
        strategy(Strategy::make(plan.strategy, of, {shape.hidden, shape.router.top_k, options.dtype})) {}

  TensorView run_experts(StreamView stream, const RoutedRows& rows);
  void finish(StreamView stream, TensorView routed, TensorView index, const SharedExperts::Output& shared,
              TensorView out);
};

namespace {

/// Scratch that grows with this rank's tokens.
struct TokenLayout {
  WorkspaceLayout workspace;
  std::uint64_t logits, ids, physical, weights, routed, index;
  WeightedInput::Layout input;
  SharedExperts::Layout shared;

  TokenLayout(const MoeShape& shape, DType dtype, std::int64_t tokens)
      : logits(workspace.add(f32_bytes(tokens, shape.experts))),
        ids(workspace.add(f32_bytes(tokens, shape.router.top_k))),
        physical(workspace.add(f32_bytes(tokens, shape.router.top_k))),
        weights(workspace.add(f32_bytes(tokens, shape.router.top_k))),
        routed(workspace.add(f32_bytes(tokens, shape.hidden))),
        index(workspace.add(f32_bytes(tokens, 1))),
        input(workspace, shape.router, dtype, tokens, shape.hidden),
        shared(workspace, shape, tokens) {}
};

const MoeLayerOptions& standard_only(const MoeLayerOptions& options) {
  if (options.layout != ExpertLayout::standard)
    fail(ErrorCode::unsupported, "parallel layer: the batched layout is for one rank");
  return options;
}

TensorView given_or(const TensorView& given, BufferView workspace, std::uint64_t offset, DType dtype, std::int64_t rows,
                    std::int64_t columns) {
  return given.present() ? given
                         : TensorView(workspace.slice(offset, f32_bytes(rows, columns)), dtype, {rows, columns});
}

}  // namespace

ParallelLayer::ParallelLayer(const ExpertRank& rank, const ParallelPlan& plan, const MoeShape& shape,
                             const MoeWeights& weights, const MoeLayerOptions& options, const LoadProgress& progress)
    : state_(std::make_unique<State>(rank, plan, shape, weights, standard_only(options), progress)) {
  const PlacementPlan& placement = plan.placement;
  const bool placed = !placement.logical_of.empty();
  require(!placed || placement.logical() == shape.experts, "parallel layer: {} experts are placed, the shape has {}",
          placement.logical(), shape.experts);
  require(rank.experts == (placed ? placement.physical() : shape.experts),
          "parallel layer: the rank shards {} experts, the {} has {}", rank.experts, placed ? "placement" : "shape",
          placed ? placement.physical() : shape.experts);
}
ParallelLayer::~ParallelLayer() = default;
ParallelLayer::ParallelLayer(ParallelLayer&&) noexcept = default;
ParallelLayer& ParallelLayer::operator=(ParallelLayer&&) noexcept = default;
const MoeShape& ParallelLayer::shape() const noexcept { return state_->shape; }
const MoeLayerOptions& ParallelLayer::options() const noexcept { return state_->parts.options; }
const MoeLayerReport& ParallelLayer::report() const noexcept { return state_->parts.report; }
std::uint64_t ParallelLayer::workspace_bytes() const noexcept {
  return state_->token_memory.capacity_bytes() + state_->row_memory.capacity_bytes() +
         state_->strategy->workspace_bytes();
}

TensorView ParallelLayer::State::run_experts(StreamView stream, const RoutedRows& rows) {
  WorkspaceLayout layout;
  const Experts::Layout of_rows(layout, parts.shape, rows.rows);
  const BufferView memory = row_memory.reserve(*stream.context, layout.total_bytes());
  return parts.experts.run(stream, rows, of_rows, memory);
}

/// out = routed + shared part: a combine of one row a token.
void ParallelLayer::State::finish(StreamView stream, TensorView routed, TensorView index,
                                  const SharedExperts::Output& shared, TensorView out) {
  combine::Args args;
  args.rows = routed;
  args.slot_rows = index;
  args.shared = shared.rows;
  args.shared_gate = shared.gate_logits;
  args.out = out;
  combine::enqueue(stream, args);
}

void ParallelLayer::forward(const Forward& args) {
  State& state = *state_;
  const MoeShape& shape = state.shape;
  const StreamView stream = state.rank.ep.stream();
  const Trace::Span span(stream.trace, "forward");
  require(args.x.rank == 2, "x: expected [T, {}], got {}", shape.hidden, args.x.describe());
  const std::int64_t tokens = args.x.shape[0];
  const std::int32_t top_k = shape.router.top_k;
  expect_tensor(args.x, "x", state.parts.options.dtype, {tokens, shape.hidden});
  for (const auto& [view, what] : {std::pair(&args.out, "out"), std::pair(&args.routed_out, "routed_out")}) {
    if (view == &args.routed_out && !view->present()) continue;
    require(is_activation_dtype(view->dtype), "{}: expected f32, f16 or bf16, got {}", what, view->describe());
    expect_tensor(*view, what, view->dtype, {tokens, shape.hidden});
  }
  if (args.router_logits.present())
    expect_tensor(args.router_logits, "router_logits", DType::f32, {tokens, shape.experts});
  if (args.topk_ids.present()) expect_tensor(args.topk_ids, "topk_ids", DType::i32, {tokens, top_k});
  if (args.topk_weights.present()) expect_tensor(args.topk_weights, "topk_weights", DType::f32, {tokens, top_k});
  if (args.fault.present()) expect_tensor(args.fault, "fault", DType::i32, {4});

  const TokenLayout layout(shape, state.parts.options.dtype, tokens);
  const BufferView memory = state.token_memory.reserve(*stream.context, layout.workspace.total_bytes());
  const TensorView logits = given_or(args.router_logits, memory, layout.logits, DType::f32, tokens, shape.experts),
                   ids = given_or(args.topk_ids, memory, layout.ids, DType::i32, tokens, top_k),
                   weights = given_or(args.topk_weights, memory, layout.weights, DType::f32, tokens, top_k),
                   routed = f32_rows(memory, layout.routed, tokens, shape.hidden);
  state.parts.router.enqueue(stream, args.x, logits);
  state.parts.choose_experts(stream, logits, ids, weights);
  TensorView physical = ids;
  if (state.places.present()) {
    physical.buffer = memory.slice(layout.physical, f32_bytes(tokens, top_k));
    state.places.find(stream, ids, state.places.depends_on_token() ? tokens_before(state.rank, tokens) : 0, physical,
                      args.fault);
  }
  const WeightedInput input(stream, shape.router, layout.input, memory, args.x, weights);
  const RoutedRows rows = state.strategy->dispatch({input.x, physical, input.weights, args.fault});
  const SharedExperts::Output shared = state.parts.shared.run(stream, args.x, layout.shared, memory);
  const TensorView expert_rows = state.run_experts(stream, rows);
  state.strategy->combine(expert_rows, routed);

  const TensorView index(memory.slice(layout.index, f32_bytes(tokens, 1)), DType::i32, {tokens, 1});
  const TensorView identity(index.buffer, DType::i32, {tokens});
  index_vectors::enqueue(stream, index_vectors::ColumnOrder{index});
  if (args.routed_out.present()) state.finish(stream, routed, identity, {}, args.routed_out);
  state.finish(stream, routed, identity, shared, args.out);
}

}  // namespace moecl
