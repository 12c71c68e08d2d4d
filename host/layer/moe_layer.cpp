#include <moecl/moe_layer.hpp>
#include <moecl/trace.hpp>

#include <algorithm>

#include "dispatch/strategies/local_strategy.hpp"
#include "host/layer/expert_pass.hpp"
#include "host/layer/forward_args.hpp"
#include "host/layer/layer_assembly.hpp"
#include "host/layer/layer_pass.hpp"
#include "runtime/check.hpp"

namespace moecl {
namespace {

/// With less workspace chunks would be short: experts get few rows, and each chunk reads their weights again.
std::uint64_t default_workspace_bytes(const DeviceCaps& caps) {
  constexpr std::uint64_t least = 256ULL << 20;
  return caps.type == DeviceType::gpu ? std::max(least, caps.global_mem_bytes / 16) : least;
}

}  // namespace

struct MoeLayer::State : LayerParts {
  State(StreamView stream, const MoeShape& layer_shape, const MoeWeights& weights, const MoeLayerOptions& layer_options,
        const LoadProgress& progress)
      : State(stream, LayerParts(stream, layer_shape, weights, layer_shape.experts, layer_options, progress)) {}
  State(StreamView stream, LayerParts parts)
      : LayerParts(std::move(parts)), places(stream, {}, shape.experts, shape.special_experts()) {}

  LocalStrategy strategy(StreamView stream) const { return {stream, shape.experts, problem_of(shape, options)}; }
  std::uint64_t pass_bytes(std::int64_t tokens) const {
    StreamView on_device;
    on_device.device = device;
    return PassLayout(*this, strategy(on_device), tokens, places.present()).bytes();
  }
  void choose_chunk();
  void expect_workspace(BufferView workspace, std::int64_t tokens, std::uint64_t needed) const;
  LayerPass pass(StreamView stream, LocalStrategy& strategy, const MoeForward& args, LayerPass::Part part) const {
    return {stream, {*this, plans, strategy, nullptr, places.present() ? &places : nullptr}, args, part};
  }

  ExpertPlaces places;
  mutable LayerPlans plans;
  mutable ExpertPassPlans expert_plans;
};

namespace {

void expect_stream(StreamView stream, const char* what) {
  require(stream.queue != nullptr, "{}: the stream has no queue: made by default, or moved from", what);
}

void expect_stream_on(const Device& device, StreamView stream, const char* what) {
  expect_stream(stream, what);
  require(stream.device->handle == device.handle, "{}: the stream is on device '{}', the layer on '{}'", what,
          stream.device->caps.name, device.caps.name);
}

}  // namespace

/// Bounds the workspace. Its bytes grow with the tokens; in the batched layout with their square, unless
/// rows_per_expert is given.
void MoeLayer::State::choose_chunk() {
  std::int64_t tokens = options.chunk_tokens > 0 ? options.chunk_tokens : 1 << 16;
  const std::uint64_t most = std::min(default_workspace_bytes(device->caps), device->caps.max_alloc_bytes);
  if (options.chunk_tokens == 0)
    while (tokens > 64 && pass_bytes(tokens) > most) tokens /= 2;
  require(pass_bytes(tokens) <= device->caps.max_alloc_bytes,
          "layer: a chunk of {} tokens needs {} bytes of workspace, device '{}' allocates at most {}", tokens,
          pass_bytes(tokens), device->caps.name, device->caps.max_alloc_bytes);
  report.chunk_tokens = tokens;
}

MoeLayer::MoeLayer(StreamView stream, const MoeShape& shape, const MoeWeights& weights, const MoeLayerOptions& options,
                   const LoadProgress& progress) {
  expect_stream(stream, "layer");
  const Trace::Span span(stream.trace, "load layer");
  state_ = std::make_unique<State>(stream, shape, weights, options, progress);
  state_->choose_chunk();
}

MoeLayer::MoeLayer(LayerAssembly& weights) : state_(std::make_unique<State>(weights.stream(), weights.finish())) {
  state_->choose_chunk();
}

MoeLayer::~MoeLayer() = default;
MoeLayer::MoeLayer(MoeLayer&&) noexcept = default;
MoeLayer& MoeLayer::operator=(MoeLayer&&) noexcept = default;
void MoeLayer::replace_weights(StreamView stream, const MoeWeights& weights, const LoadProgress& progress) {
  expect_stream_on(*state_->device, stream, "replace_weights");
  state_->replace(stream, weights, progress);
}
void MoeLayer::replace_expert(StreamView stream, std::int64_t expert, const ExpertMatrices& weights) {
  expect_stream_on(*state_->device, stream, "replace_expert");
  state_->replace_expert(stream, expert, weights);
}
std::uint64_t MoeLayer::packed_expert_bytes() const { return state_->packed_expert_bytes(); }
std::vector<std::byte> MoeLayer::packed_expert(StreamView stream, std::int64_t expert) const {
  expect_stream_on(*state_->device, stream, "packed expert");
  return state_->packed_expert(stream, expert);
}
PlainExpert MoeLayer::plain_expert(StreamView stream, std::int64_t expert) const {
  expect_stream_on(*state_->device, stream, "plain expert");
  return state_->plain_expert(stream, expert);
}
void MoeLayer::replace_packed_expert(StreamView stream, std::int64_t expert, const std::vector<std::byte>& packed) {
  expect_stream_on(*state_->device, stream, "replace packed expert");
  state_->replace_packed_expert(stream, expert, packed);
}
const MoeShape& MoeLayer::shape() const noexcept { return state_->shape; }
const MoeLayerOptions& MoeLayer::options() const noexcept { return state_->options; }
const MoeLayerReport& MoeLayer::report() const noexcept { return state_->report; }
ResidencyCounts MoeLayer::residency(StreamView stream) const {
  expect_stream_on(*state_->device, stream, "residency");
  return state_->experts.residency(stream);
}
bool MoeLayer::has_router() const noexcept { return state_->has_router; }

void MoeLayer::forward_experts(StreamView stream, const ExpertRows& rows, Submit submit) const {
  expect_stream_on(*state_->device, stream, "experts");
  state_->expect_whole();
  run_expert_pass(stream, *state_, state_->expert_plans, rows, submit);
}
std::uint64_t MoeLayer::expert_workspace_bytes(std::int64_t rows, std::int64_t slots) const {
  return expert_pass_bytes(*state_, rows, slots);
}

std::uint64_t MoeLayer::workspace_bytes(std::int64_t tokens) const {
  require(tokens >= 0, "workspace: {} tokens", tokens);
  // If a last chunk of a few tokens runs in one launch, it may need more than a whole chunk.
  const std::int64_t chunk = std::min(tokens, state_->report.chunk_tokens),
                     rest = std::min(chunk, one_launch_tokens(*state_));
  return std::max(state_->pass_bytes(chunk), rest == chunk ? 0 : state_->pass_bytes(rest));
}

void MoeLayer::compile(StreamView stream, std::int64_t max_tokens) const {
  constexpr std::int64_t each_up_to = 16;  // the one launch, and shapes of few rows, differ for each number of tokens
  constexpr std::uint64_t named_bytes = 64;
  require(max_tokens >= 0, "compile: {} tokens", max_tokens);
  stream.compiles_only = true;
  const MoeShape& shape = state_->shape;
  // Launches that are only compiled need memory handles but no memory. Different tensors get different handles.
  const Buffer x(*stream.context, named_bytes), input(*stream.context, named_bytes), out(*stream.context, named_bytes),
      shared(*stream.context, named_bytes), scratch(*stream.context, named_bytes);
  const auto named = [](const Buffer& memory, std::uint64_t bytes) { return BufferView{memory.handle(), 0, bytes}; };
  const auto matrix = [&](const Buffer& memory, DType dtype, std::int64_t rows, std::int64_t columns) {
    const std::uint64_t bytes = static_cast<std::uint64_t>(rows * columns) * size_bytes(dtype);
    return TensorView(named(memory, bytes), dtype, {rows, columns});
  };
  const DType dtype = state_->options.dtype;
  const std::int64_t width = shape.expert_width();
  for (std::int64_t next = 1; max_tokens > 0; next = next < each_up_to ? next + 1 : 2 * next) {
    const std::int64_t tokens = std::min(next, max_tokens);
    Forward args;
    args.x = matrix(x, dtype, tokens, shape.hidden);
    if (width != shape.hidden) args.expert_input = matrix(input, dtype, tokens, width);
    if (width == shape.hidden || shape.shared_intermediate == 0) {
      args.out = matrix(out, dtype, tokens, width);
    } else {
      args.routed_out = matrix(out, dtype, tokens, width);
      args.shared_out = matrix(shared, dtype, tokens, shape.hidden);
    }
    if (shape.vocabulary > 0)
      args.token_ids = TensorView(named(input, named_bytes * static_cast<std::uint64_t>(tokens)), DType::i32, {tokens});
    else if (!state_->has_router)
      args.given_logits = matrix(input, DType::f32, tokens, shape.choices());
    args.workspace = named(scratch, workspace_bytes(tokens));
    forward(stream, args);
    if (next >= max_tokens) return;
  }
}

void MoeLayer::State::expect_workspace(BufferView workspace, std::int64_t tokens, std::uint64_t needed) const {
  require(workspace.size_bytes >= needed && workspace.handle != nullptr, "workspace: {} tokens need {} bytes, got {}",
          tokens, needed, workspace.handle != nullptr ? workspace.size_bytes : 0);
  expect_workspace_start(workspace);
}

void MoeLayer::prefetch(StreamView stream, const MoeInputs& tokens, BufferView workspace, Submit submit) const {
  expect_stream_on(*state_->device, stream, "prefetch");
  state_->expect_whole();
  MoeForward args = checked_prefetch(tokens, state_->shape, *state_);
  const std::int64_t count = args.x.shape[0];
  if (count > 0) state_->expect_workspace(workspace, count, workspace_bytes(count));
  if (count == 0 || count > state_->report.chunk_tokens || !state_->experts.limited())
    return enqueue_marker(stream, submit);
  args.workspace = workspace;
  expect_operands_apart(args, workspace.slice(0, workspace_bytes(count)));
  if (submit.wait.count != 0) enqueue_marker(stream, {submit.wait, nullptr});
  LocalStrategy strategy = state_->strategy(stream);
  state_->pass(stream, strategy, args, {0, true, nullptr, 0, count, count}).prefetch({{}, submit.done});
}

void MoeLayer::forward(StreamView stream, const Forward& given, Submit submit) const {
  const MoeShape& shape = state_->shape;
  expect_stream_on(*state_->device, stream, "forward");
  state_->expect_whole();
  const Forward args = checked_forward(given, shape, *state_, shape.experts);
  const std::int64_t tokens = args.x.shape[0];

  const Trace::Span span(stream.trace, "forward");
  if (tokens == 0) return enqueue_marker(stream, submit);
  std::int64_t chunk = std::min(tokens, state_->report.chunk_tokens);
  const std::uint64_t needed = workspace_bytes(tokens);
  state_->expect_workspace(args.workspace, tokens, needed);
  expect_operands_apart(args, args.workspace.slice(0, needed));
  if (submit.wait.count != 0) enqueue_marker(stream, {submit.wait, nullptr});
  for (std::int64_t first = 0; first < tokens; first += chunk) {
    const std::int64_t count = std::min(chunk, tokens - first);
    LocalStrategy strategy = state_->strategy(stream);
    state_->pass(stream, strategy, part_of(args, first, count), {first, first == 0, nullptr, 0, count, count})
        .run({{}, first + count == tokens ? submit.done : nullptr});
  }
}

}  // namespace moecl
