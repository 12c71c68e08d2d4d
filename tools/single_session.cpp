#include <moecl/layer_weights.hpp>

#include <algorithm>

#include "tools/layer_session.hpp"
#include "tools/progress.hpp"
#include "tools/tensor_values.hpp"

namespace moecl::cli {
namespace {

class SingleSession final : public LayerSession {
 public:
  explicit SingleSession(const LayerOptions& options)
      : LayerSession(options), context_(options.device.open()), stream_(*context_, 0, false) {
    if (options.prefetch) beside_ = Stream::beside(stream_, false);
    const auto start = std::chrono::steady_clock::now();
    const MoeWeights weights = find_layer_weights(checkpoint_, config_);
    Progress progress("loading experts");
    layer_.emplace(stream_, config_.shape, weights, options_of_places(0, config_.shape.experts), std::ref(progress));
    load_ms_ = milliseconds_since(start);
  }

  LayerOutputs run(const std::vector<float>& hidden_states, int repeat, ForwardTimes& times) override {
    const MoeShape& shape = config_.shape;
    LayerOutputs outputs;
    outputs.tokens = tokens_ = static_cast<std::int64_t>(hidden_states.size()) / shape.hidden;
    Context& context = *context_;
    const DeviceTensor x(context, layer_options_.dtype, {tokens_, shape.hidden});
    const ObservedTensors observed(context, shape, tokens_);
    const Buffer workspace(context, layer_->workspace_bytes(tokens_)),
        of_prefetch(context, layer_->workspace_bytes(tokens_));
    const std::vector<std::byte> bytes = encode(hidden_states, layer_options_.dtype);
    write_blocking(stream_, x.view.buffer, bytes.data(), bytes.size());

    MoeLayer::Forward forward;
    forward.x = x;
    forward.out = observed.out;
    forward.workspace = workspace.view();
    MoeLayer::Forward telling = forward;  // the first pass also reads the router's results
    telling.routed_out = observed.routed;
    telling.router_logits = observed.logits;
    telling.topk_ids = observed.ids;
    telling.topk_weights = observed.weights;
    LoadRecord loads(stream_, 1, shape.experts);
    outputs.phase = phase_of(tokens_);
    telling.expert_load = loads.counts(0, outputs.phase);
    const bool prefetches = beside_.view().queue != nullptr;
    const auto pass = [&](StreamView stream, StreamView beside, const MoeLayer::Forward& args) {
      if (prefetches) layer_->prefetch(beside, args, of_prefetch.view());
      layer_->forward(stream, args);
    };
    pass(stream_, beside_, telling);
    outputs.place_loads = read_loads(stream_, loads, outputs.phase);
    for (int i = 0; i < repeat; ++i) {
      const std::uint64_t syncs_before = context.counters().host_syncs;
      const auto start = std::chrono::steady_clock::now();
      pass(stream_, beside_, forward);
      times.host_syncs = context.counters().host_syncs - syncs_before;
      stream_.finish();
      times.us.push_back(milliseconds_since(start) * 1e3);
    }
    std::sort(times.us.begin(), times.us.end());
    const Stream traced(context), traced_beside = prefetches ? Stream(context) : Stream();
    pass(traced, traced_beside, forward);
    traced.finish();
    observed.read(stream_, outputs);
    count_experts(shape, outputs);
    return outputs;
  }

  SessionReport report() override {
    SessionReport report;
    report.devices = {context_->devices().front().caps};
    report.rank_places = "one device";
    report.strategy = "local";
    report.strategy_reason = "one rank holds every expert";
    report.layer = layer_->report();
    report.residency = layer_->residency(stream_);
    report.workspace_bytes = layer_->workspace_bytes(tokens_);
    report.programs_built = context_->counters().programs_built;
    report.programs_from_disk = context_->counters().programs_from_disk;
    report.kernels = context_->trace()->summary();
    return report;
  }

  void write_trace(const std::string& path) override { context_->trace()->write_chrome_json(path); }

 private:
  std::unique_ptr<Context> context_;
  Stream stream_, beside_;  ///< the second is for prefetches, if there are any
  std::optional<MoeLayer> layer_;
  std::int64_t tokens_ = 0;
};

}  // namespace

std::unique_ptr<LayerSession> open_single_session(const LayerOptions& options) {
  return std::make_unique<SingleSession>(options);
}

}  // namespace moecl::cli
