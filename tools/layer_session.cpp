#include "tools/layer_session.hpp"

#include <moecl/error.hpp>
#include <moecl/layer_weights.hpp>
#include <moecl/trace.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "tools/commands.hpp"
#include "tools/progress.hpp"
#include "tools/tensor_values.hpp"

namespace moecl::cli {
namespace {

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

void refuse_unless(bool condition, const std::string& message) {
  if (!condition) throw Error(ErrorCode::invalid_argument, message);
}

/// Options first: what cannot be done is said before any file is looked at.
Checkpoint open_checked(const LayerOptions& options) {
  options.check();
  return Checkpoint::open(options.model_dir);
}

/// Device memory with a shape.
struct DeviceTensor {
  Buffer memory;
  TensorView view;

  DeviceTensor(Context& context, DType dtype, std::initializer_list<std::int64_t> shape) {
    std::uint64_t bytes = size_bytes(dtype);
    for (const std::int64_t extent : shape) bytes *= static_cast<std::uint64_t>(extent);
    memory = Buffer(context, bytes);
    view = TensorView(memory.view(), dtype, shape);
  }
  template <class T>
  std::vector<T> read(StreamView stream) const {
    std::vector<T> values(static_cast<std::size_t>(view.elements()));
    read_blocking(stream, view.buffer, values.data(), view.size_bytes());
    return values;
  }
};

}  // namespace

void LayerOptions::add_to(CLI::App& command) {
  command.add_option("--layer", layer, "decoder layer (default: the first one that has experts)")->type_name("N");
  command
      .add_option_function<std::string>(
          "--dtype", [this](const std::string& text) { dtype = dtype_from_name(text); },
          "storage of activations and weights on the device (default: the checkpoint's own)")
      ->check(CLI::IsMember({"f32", "f16", "bf16"}));
  command.add_option("--act-quant", act_quant, "activation quantization")
      ->check(CLI::IsMember({"auto", "none", "int8", "fp8", "mxfp8"}))
      ->capture_default_str();
  command.add_option("--quantize", quantize, "quantize an unquantized checkpoint's experts while loading")
      ->type_name("SCHEME");
  command.add_option("--ranks", ranks, "parallel group of tp * dp ranks")
      ->check(whole_number(1))
      ->capture_default_str();
  command.add_option("--tp", tp, "tensor-parallel size")->check(whole_number(1))->capture_default_str();
  command.add_option("--dp", dp, "data-parallel size (default: ranks / tp)")->check(whole_number(1));
  command.add_flag("--ep", expert_parallel, "expert-parallel over all ranks");
  command.add_option("--tokens-per-rank", tokens_per_rank, "how the tokens are dealt to the dp ranks")
      ->delimiter(',')
      ->type_name("A,B,...");
  command.add_option("--strategy", strategy, "how tokens travel")
      ->check(CLI::IsMember({"auto", "mc2", "allgather", "all2allv", "multicast"}))
      ->capture_default_str();
  device.add_to(command);
}

void LayerOptions::check() const {
  refuse_unless(ranks == 1 && tp == 1 && dp == 1,
                fmt::format("--ranks {} --tp {} --dp {}: this version runs one rank", ranks, tp, dp));
  refuse_unless(strategy == "auto", "--strategy " + strategy + ": strategies need --ranks above 1");
  refuse_unless(act_quant == "auto" || act_quant == "none",
                "--act-quant " + act_quant + ": this version runs unquantized activations");
  refuse_unless(quantize.empty(), "--quantize " + quantize + ": this version runs unquantized weights");
  refuse_unless(tokens_per_rank.empty(), "--tokens-per-rank: one rank takes all tokens");
}

LayerSession::LayerSession(const LayerOptions& options) : checkpoint_(open_checked(options)) {
  const ModelConfig& model = checkpoint_.config();
  config_ = model.layer(options.layer.value_or(model.first_moe_layer()));
  const MoeWeights weights = find_layer_weights(checkpoint_, config_);
  dtype_ = options.dtype.value_or(weights.experts.front().gate.dtype);
  context_ = options.device.open();
  stream_ = Stream(*context_, 0, false);
  const auto start = std::chrono::steady_clock::now();
  Progress progress("loading experts");
  MoeLayerOptions layer_options;
  layer_options.dtype = dtype_;
  layer_.emplace(stream_, config_.shape, weights, layer_options, std::ref(progress));
  load_ms_ = milliseconds_since(start);
}

LayerOutputs LayerSession::run(const std::vector<float>& hidden_states, int repeat, ForwardTimes& times) {
  const MoeShape& shape = config_.shape;
  const std::int32_t top_k = shape.router.top_k;
  LayerOutputs outputs;
  outputs.tokens = static_cast<std::int64_t>(hidden_states.size()) / shape.hidden;
  const std::int64_t tokens = outputs.tokens;

  Context& context = *context_;
  const DeviceTensor x(context, dtype_, {tokens, shape.hidden}), out(context, DType::f32, {tokens, shape.hidden});
  const DeviceTensor routed(context, DType::f32, {tokens, shape.hidden}),
      logits(context, DType::f32, {tokens, shape.experts});
  const DeviceTensor ids(context, DType::i32, {tokens, top_k}), weights(context, DType::f32, {tokens, top_k});
  const Buffer workspace(context, layer_->workspace_bytes(tokens));
  const std::vector<std::byte> bytes = encode(hidden_states, dtype_);
  write_blocking(stream_, x.view.buffer, bytes.data(), bytes.size());

  MoeLayer::Forward forward;
  forward.x = x.view;
  forward.out = out.view;
  forward.workspace = workspace.view();
  MoeLayer::Forward observed = forward;  // the first pass also tells what the router did
  observed.routed_out = routed.view;
  observed.router_logits = logits.view;
  observed.topk_ids = ids.view;
  observed.topk_weights = weights.view;
  layer_->forward(stream_, observed);
  stream_.finish();
  for (int i = 0; i < repeat; ++i) {
    const std::uint64_t syncs_before = context.counters().host_syncs;
    const auto start = std::chrono::steady_clock::now();
    layer_->forward(stream_, forward);
    times.host_syncs = context.counters().host_syncs - syncs_before;
    stream_.finish();
    times.us.push_back(milliseconds_since(start) * 1e3);
  }
  std::sort(times.us.begin(), times.us.end());
  const Stream traced(context);
  layer_->forward(traced, forward);
  traced.finish();

  outputs.output = out.read<float>(stream_);
  outputs.routed_output = routed.read<float>(stream_);
  outputs.router_logits = logits.read<float>(stream_);
  outputs.topk_weights = weights.read<float>(stream_);
  outputs.topk_ids = ids.read<std::int32_t>(stream_);
  outputs.expert_counts.assign(static_cast<std::size_t>(shape.experts), 0);
  for (const std::int32_t id : outputs.topk_ids) ++outputs.expert_counts.at(static_cast<std::size_t>(id));
  return outputs;
}

}  // namespace moecl::cli
