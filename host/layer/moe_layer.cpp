#include <moecl/fused_moe.hpp>
#include <moecl/local_strategy.hpp>
#include <moecl/moe_layer.hpp>
#include <moecl/route_tokens.hpp>
#include <moecl/trace.hpp>

#include <algorithm>

#include "host/layer/forward_args.hpp"
#include "host/layer/layer_parts.hpp"
#include "host/layer/scratch.hpp"
#include "host/layer/weighted_input.hpp"
#include "kernels_cl/common/next_variant.hpp"
#include "runtime/check.hpp"

namespace moecl {
namespace {

struct ChunkLayout;

/// Chunks that are too short give experts few rows, and read their weights again.
std::uint64_t default_workspace_bytes(const DeviceCaps& caps) {
  constexpr std::uint64_t least = 256ULL << 20;
  return caps.type == DeviceType::gpu ? std::max(least, caps.global_mem_bytes / 16) : least;
}

}  // namespace

struct MoeLayer::State : LayerParts {
  using LayerParts::LayerParts;

  local_strategy::Problem problem(std::int64_t tokens) const {
    local_strategy::Problem problem;
    problem.tokens = tokens;
    problem.hidden = shape.hidden;
    problem.experts = shape.experts;
    problem.top_k = shape.router.top_k;
    problem.dtype = options.dtype;
    if (options.layout == ExpertLayout::batched)
      problem.rows_per_expert = options.rows_per_expert > 0 ? options.rows_per_expert : tokens;
    return problem;
  }
  /// The most tokens that one launch may take.
  std::int64_t fused_tokens() const {
    if (!options.one_launch) return 0;
    return experts.are_weight_only() ? fused_moe::worthwhile_weight_only_tokens : fused_moe::worthwhile_tokens;
  }
  ChunkLayout layout(std::int64_t tokens) const;
  void choose_chunk();
  std::string run_fused(StreamView stream, const Forward& args, const ChunkLayout& layout,
                        const gating_top_k::Args& choice, const expert_sort::Args& sort, Submit submit) const;
  void run_chunk(StreamView stream, const Forward& args, Submit submit) const;
};

namespace {

/// Scratch of one chunk.
struct ChunkLayout {
  WorkspaceLayout workspace;
  TensorView logits, ids, weights;
  WeightedInput::Layout input;
  local_strategy::Layout strategy;
  Experts::Layout experts;
  SharedExperts::Layout shared;
  TensorView fused, slices;

  ChunkLayout(const LayerParts& parts, const local_strategy::Problem& problem, std::int64_t fused_tokens)
      : logits(workspace.add(DType::f32, {problem.tokens, problem.experts})),
        ids(workspace.add(DType::i32, {problem.tokens, problem.top_k})),
        weights(workspace.add(DType::f32, {problem.tokens, problem.top_k})),
        input(workspace, parts.shape.router, problem.dtype, problem.tokens, problem.hidden),
        strategy(workspace, problem, parts.device->caps),
        experts(workspace, parts.experts, problem.rows_per_expert > 0 ? problem.rows() : problem.tokens,
                problem.rows()),
        shared(workspace, parts.shared, problem.tokens),
        slices(workspace.add(DType::u8, {static_cast<std::int64_t>(grouped_gemm::scratch_bytes(parts.device->caps))})) {
    if (problem.tokens > fused_tokens) return;
    const std::uint64_t bytes =
        fused_moe::scratch_bytes(problem.tokens, problem.hidden, problem.experts, {}, parts.device->caps);
    fused = workspace.add(DType::u8, {static_cast<std::int64_t>(bytes)});
  }
};

void expect_stream(StreamView stream, const char* what) {
  require(stream.queue != nullptr, "{}: the stream has no queue: made by default, or moved from", what);
}

void expect_stream_on(const Device& device, StreamView stream, const char* what) {
  expect_stream(stream, what);
  require(stream.device->handle == device.handle, "{}: the stream is on device '{}', the layer on '{}'", what,
          stream.device->caps.name, device.caps.name);
}

}  // namespace

ChunkLayout MoeLayer::State::layout(std::int64_t tokens) const { return {*this, problem(tokens), fused_tokens()}; }

/// Bounds the workspace: bytes grow with tokens, in the batched layout with their square until rows_per_expert is
/// fixed.
void MoeLayer::State::choose_chunk() {
  const auto bytes = [&](std::int64_t tokens) { return layout(tokens).workspace.total_bytes(); };
  std::int64_t tokens = options.chunk_tokens > 0 ? options.chunk_tokens : 1 << 16;
  const std::uint64_t most = std::min(default_workspace_bytes(device->caps), device->caps.max_alloc_bytes);
  if (options.chunk_tokens == 0)
    while (tokens > 64 && bytes(tokens) > most) tokens /= 2;
  require(bytes(tokens) <= device->caps.max_alloc_bytes,
          "layer: a chunk of {} tokens needs {} bytes of workspace, device '{}' allocates at most {}", tokens,
          bytes(tokens), device->caps.name, device->caps.max_alloc_bytes);
  report.chunk_tokens = tokens;
}

MoeLayer::MoeLayer(StreamView stream, const MoeShape& shape, const MoeWeights& weights, const MoeLayerOptions& options,
                   const LoadProgress& progress) {
  expect_stream(stream, "layer");
  const Trace::Span span(stream.trace, "load layer");
  state_ = std::make_unique<State>(stream, shape, weights, shape.experts, options, progress);
  state_->choose_chunk();
}

MoeLayer::~MoeLayer() = default;
MoeLayer::MoeLayer(MoeLayer&&) noexcept = default;
MoeLayer& MoeLayer::operator=(MoeLayer&&) noexcept = default;
void MoeLayer::replace_weights(StreamView stream, const MoeWeights& weights, const LoadProgress& progress) {
  expect_stream_on(*state_->device, stream, "replace_weights");
  state_->replace(stream, weights, progress);
}
const MoeShape& MoeLayer::shape() const noexcept { return state_->shape; }
const MoeLayerOptions& MoeLayer::options() const noexcept { return state_->options; }
const MoeLayerReport& MoeLayer::report() const noexcept { return state_->report; }

std::uint64_t MoeLayer::workspace_bytes(std::int64_t tokens) const {
  require(tokens >= 0, "workspace: {} tokens", tokens);
  // A rest of a few tokens in one launch may need more than a whole chunk.
  const std::int64_t chunk = std::min(tokens, state_->report.chunk_tokens),
                     rest = std::min(chunk, state_->fused_tokens());
  return std::max(state_->layout(chunk).workspace.total_bytes(), state_->layout(rest).workspace.total_bytes());
}

/// All of it in one launch, and shared experts before it.
/// @return  why that cannot be, nothing was enqueued then; else empty
std::string MoeLayer::State::run_fused(StreamView stream, const Forward& args, const ChunkLayout& layout,
                                       const gating_top_k::Args& choice, const expert_sort::Args& sort,
                                       Submit submit) const {
  if (!options.one_launch) return "the layer's options forbid one";
  const local_strategy::Problem routing = problem(args.x.shape[0]);
  if (routing.tokens > fused_tokens()) return fmt::format("{} tokens are more than {}", routing.tokens, fused_tokens());
  if (args.ids.present()) return "the caller chose the experts";
  if (!router.takes_codes()) return "CLBlast multiplies with the router";
  if (routing.rows_per_expert != 0) return "the layout is batched";
  if (shape.router.weight_on_input) return "weights multiply the input";
  if (args.routed_out.present()) return "the routed part is asked for alone";
  const local_strategy::Dispatched dispatched =
      local_strategy::dispatch(stream, routing, layout.strategy, args.workspace, args.x, sort);
  const std::optional<Experts::Products> products = experts.products(dispatched.rows, layout.experts, args.workspace);
  if (!products) return "rows become no codes of 8 bits, or weights are in segments";
  fused_moe::Args steps{
      router.product(args.x, choice.logits),
      choice,
      products->gate_up,
      products->down,
      local_strategy::combine_args(dispatched, products->down.out, {choice.weights, {}, {}}, args.out),
      args.fault,
      tensor_in(args.workspace, layout.fused).buffer,
      products->tokens,
      products->activated};
  if (std::string apart = fused_moe::why_apart(steps, shape.router, {}, device->caps); !apart.empty()) return apart;
  const SharedExperts::Output shared_part =
      shared.run(stream, args.x, layout.shared, args.workspace, tensor_in(args.workspace, layout.slices).buffer);
  steps.combine.shared = shared_part.rows;
  steps.combine.shared_gate = shared_part.gate_logits;
  fused_moe::enqueue(stream, steps, shape.router, {}, submit);
  return {};
}

void MoeLayer::State::run_chunk(StreamView stream, const Forward& args, Submit submit) const {
  const std::int64_t tokens = args.x.shape[0];
  const local_strategy::Problem routing = problem(tokens);
  const ChunkLayout layout = this->layout(tokens);
  const BufferView workspace = args.workspace;

  const BufferView slices = tensor_in(workspace, layout.slices).buffer;
  const bool chosen = args.ids.present();
  const TensorView logits = given_or(args.router_logits, workspace, layout.logits),
                   ids = given_or(chosen ? args.ids : args.topk_ids, workspace, layout.ids),
                   weights = given_or(chosen ? args.weights : args.topk_weights, workspace, layout.weights);
  const gating_top_k::Args choice = gating(logits, args.finished, ids, weights);
  const expert_sort::Args sort = local_strategy::sort_args(routing, layout.strategy, workspace, ids, args.fault);
  const std::string apart =
      with_next_variant(stream, [&] { return run_fused(stream, args, layout, choice, sort, submit); });
  if (apart.empty()) return;
  const Trace::Span span(stream.trace, "layer in several launches: " + apart);
  if (!chosen || args.router_logits.present()) router.enqueue(stream, args.x, logits, slices);
  // Where the rows are the tokens as they came, their codes are made beside the choice.
  std::optional<RowQuant::Step> codes;
  if (chosen) {
    expert_sort::enqueue(stream, sort);
  } else {
    if (routing.rows_per_expert == 0 && !shape.router.weight_on_input)
      codes = experts.token_codes(args.x, layout.experts, workspace);
    route_tokens::enqueue(stream, {choice, sort, codes ? codes->args : quantize_groups::Args()}, shape.router);
  }
  const WeightedInput input(stream, shape.router, layout.input, workspace, args.x, weights);
  local_strategy::Dispatched dispatched =
      local_strategy::dispatch(stream, routing, layout.strategy, workspace, input.x, sort);
  if (codes) {
    dispatched.rows.x = codes->rows.rows;
    dispatched.rows.x_scale = codes->rows.scale;
    dispatched.rows.x_group = codes->rows.group;
  }
  const TensorView rows = experts.run(stream, dispatched.rows, layout.experts, workspace);
  if (args.routed_out.present())
    local_strategy::combine(stream, dispatched, rows, {input.weights, {}, {}}, args.routed_out);
  const SharedExperts::Output shared_part = shared.run(stream, args.x, layout.shared, workspace, slices);
  local_strategy::combine(stream, dispatched, rows, {input.weights, shared_part.rows, shared_part.gate_logits},
                          args.out, submit);
}

void MoeLayer::compile(StreamView stream, std::int64_t max_tokens) const {
  constexpr std::int64_t each_up_to = 16;  // one launch, and the shapes of few rows, differ from token to token
  constexpr std::uint64_t named_bytes = 64;
  require(max_tokens >= 0, "compile: {} tokens", max_tokens);
  stream.compiles_only = true;
  const MoeShape& shape = state_->shape;
  // Launches that are not enqueued need memory by name alone, tensors that differ by different names.
  const Buffer x(*stream.context, named_bytes), out(*stream.context, named_bytes),
      scratch(*stream.context, named_bytes);
  const auto named = [](const Buffer& memory, std::uint64_t bytes) { return BufferView{memory.handle(), 0, bytes}; };
  for (std::int64_t next = 1; max_tokens > 0; next = next < each_up_to ? next + 1 : 2 * next) {
    const std::int64_t tokens = std::min(next, max_tokens);
    const std::uint64_t bytes = static_cast<std::uint64_t>(tokens * shape.hidden) * size_bytes(state_->options.dtype);
    Forward args;
    args.x = TensorView(named(x, bytes), state_->options.dtype, {tokens, shape.hidden});
    args.out = TensorView(named(out, bytes), state_->options.dtype, {tokens, shape.hidden});
    args.workspace = named(scratch, workspace_bytes(tokens));
    forward(stream, args);
    if (next >= max_tokens) return;
  }
}

void MoeLayer::forward(StreamView stream, const Forward& given, Submit submit) const {
  const MoeShape& shape = state_->shape;
  expect_stream_on(*state_->device, stream, "forward");
  state_->expect_whole();
  const Forward args = checked_forward(given, shape, state_->options.dtype);
  const std::int64_t tokens = args.x.shape[0];
  require(args.ids.present() == args.weights.present(), "ids and weights: give both or neither");
  require(!args.ids.present() || (!args.topk_ids.present() && !args.topk_weights.present()),
          "topk_ids and topk_weights are the router's outputs: they cannot be asked for with the caller's own ids");
  require(!args.ids.present() || !args.finished.present(), "finished: the caller's own ids say so themselves, by -1");
  if (args.ids.present()) {
    expect_ids(args.ids, "ids", tokens, shape.router.top_k);
    expect_operand(args.weights, "weights", DType::f32, {tokens, shape.router.top_k});
  }

  const Trace::Span span(stream.trace, "forward");
  if (tokens == 0) return enqueue_marker(stream, submit);
  std::int64_t chunk = std::min(tokens, state_->report.chunk_tokens);
  const std::uint64_t needed = workspace_bytes(tokens);
  require(args.workspace.size_bytes >= needed && args.workspace.handle != nullptr,
          "workspace: {} tokens need {} bytes, got {}", tokens, needed,
          args.workspace.handle != nullptr ? args.workspace.size_bytes : 0);
  require(args.workspace.offset_bytes % sizeof(float) == 0, "workspace: byte offset {} is no multiple of {}",
          args.workspace.offset_bytes, sizeof(float));
  expect_operands_apart(args, args.workspace.slice(0, needed));
  if (submit.wait.count != 0) enqueue_marker(stream, {submit.wait, nullptr});
  for (std::int64_t first = 0; first < tokens; first += chunk) {
    const std::int64_t count = std::min(chunk, tokens - first);
    Forward part = args;
    part.x = args.x.rows(first, count);
    for (TensorView Forward::*view :
         {&Forward::out, &Forward::ids, &Forward::weights, &Forward::finished, &Forward::router_logits,
          &Forward::topk_ids, &Forward::topk_weights, &Forward::routed_out})
      part.*view = rows_or_absent(args.*view, first, count);
    state_->run_chunk(stream, part, {{}, first + count == tokens ? submit.done : nullptr});
  }
}

}  // namespace moecl
