#include <moecl/error.hpp>
#include <moecl/layer_weights.hpp>
#include <moecl/parallel_layer.hpp>
#include <moecl/select_strategy.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <numeric>

#include "tools/layer_session.hpp"
#include "tools/progress.hpp"
#include "tools/rank_devices.hpp"
#include "tools/tensor_values.hpp"

namespace moecl::cli {
namespace {

GroupOptions group_options(const LayerOptions& from) {
  GroupOptions options;
  options.transport = from.transport;
  return options;
}

class ParallelSession final : public LayerSession {
 public:
  explicit ParallelSession(const LayerOptions& options)
      : LayerSession(options),
        options_(options),
        devices_(options.device, options.ranks, options.sub_devices),
        group_(devices_.views(), group_options(options)) {}

  LayerOutputs run(const std::vector<float>& hidden_states, int repeat, ForwardTimes& times) override;
  SessionReport report() override;
  void write_trace(const std::string& path) override {
    for (std::size_t i = 0; i < devices_.contexts.size(); ++i) {
      const std::size_t dot = path.rfind('.');
      devices_.contexts[i]->trace()->write_chrome_json(
          i == 0 ? path
                 : fmt::format("{}.{}{}", path.substr(0, dot), i, dot == std::string::npos ? "" : path.substr(dot)));
    }
  }

 private:
  ExpertRank place_of(const Communicator& world) const {
    return {world, options_.tp, placement_.physical(), options_.sharding(), options_.ranks_per_node()};
  }
  std::vector<std::int64_t> deal(std::int64_t tokens) const;
  /// Whose tokens a rank has, a number of `deal`.
  std::size_t holder_of(const ExpertRank& rank) const {
    return static_cast<std::size_t>(options_.replace_allreduce ? rank.ep.rank() : rank.dp.rank());
  }
  void load();
  std::uint64_t host_syncs() const {
    std::uint64_t sum = 0;
    for (const auto& context : devices_.contexts) sum += context->counters().host_syncs;
    return sum;
  }
  /// Bytes that ranks have received from each other so far, from those of other nodes alone if `between_nodes`.
  std::uint64_t received(bool between_nodes) {
    std::uint64_t sum = 0;
    const std::int32_t node = options_.ranks_per_node();
    for (std::int32_t to = 0; to < group_.size(); ++to)
      for (std::int32_t from = 0; from < group_.size(); ++from)
        if (!between_nodes || to / node != from / node) sum += group_.communicator(to).bytes_received(from);
    return sum;
  }

  LayerOptions options_;
  RankDevices devices_;
  RankGroup group_;
  std::vector<std::unique_ptr<ParallelLayer>> layers_;
};

SharedSharding shared_sharding_from_name(const std::string& text) {
  if (text == "tokens") return SharedSharding::tokens;
  return text == "intermediate" ? SharedSharding::intermediate : SharedSharding::replicated;
}

/// Tokens of each dp rank; where the ranks of a tp group have other tokens, of each rank.
std::vector<std::int64_t> ParallelSession::deal(std::int64_t tokens) const {
  std::vector<std::int64_t> counts = options_.tokens_per_rank;
  const int dp = options_.dp_size();
  if (counts.empty())
    for (int d = 0; d < dp; ++d) counts.push_back(tokens / dp + (d < tokens % dp ? 1 : 0));
  if (const std::int64_t sum = std::accumulate(counts.begin(), counts.end(), std::int64_t{0}); sum != tokens)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--tokens-per-rank: {} tokens in all, the input has {}", sum, tokens));
  if (!options_.replace_allreduce) return counts;
  std::vector<std::int64_t> shares;
  for (const std::int64_t count : counts)
    for (int t = 0; t < options_.tp; ++t) shares.push_back(count / options_.tp + (t < count % options_.tp ? 1 : 0));
  return shares;
}

void ParallelSession::load() {
  const auto start = std::chrono::steady_clock::now();
  layers_.resize(static_cast<std::size_t>(options_.ranks));
  Progress progress("loading experts of rank 0");
  group_.run([&](Communicator& world) {
    const ExpertRank rank = place_of(world);
    const auto first = placement_.logical_of.begin() + rank.first_expert;
    const std::vector<std::int64_t> mine(first, first + rank.local_experts);
    ParallelPlan plan;
    plan.placement = placement_;
    if (options_.strategy == "auto")
      plan.rules = strategy_rules_from_name(options_.rules);
    else
      plan.strategy = strategy_from_name(options_.strategy);
    plan.wire = wire_format_from_name(options_.wire);
    plan.shared_sharding = shared_sharding_from_name(options_.shared_sharding);
    plan.replace_allreduce = options_.replace_allreduce;
    if (options_.micro_batches == 2) plan.dbo_prefill_token_threshold = 0;
    layers_[static_cast<std::size_t>(world.rank())] =
        std::make_unique<ParallelLayer>(rank, plan, config_.shape, find_layer_weights(checkpoint_, config_, mine),
                                        options_of_places(rank.first_expert, rank.local_experts),
                                        world.rank() == 0 ? LoadProgress(std::ref(progress)) : LoadProgress());
  });
  load_ms_ = milliseconds_since(start);
}

LayerOutputs ParallelSession::run(const std::vector<float>& hidden_states, int repeat, ForwardTimes& times) {
  const MoeShape& shape = config_.shape;
  LayerOutputs outputs;
  outputs.tokens = static_cast<std::int64_t>(hidden_states.size()) / shape.hidden;
  const std::vector<std::int64_t> counts = deal(outputs.tokens);
  load();
  std::vector<LayerOutputs> of_holder(counts.size());
  outputs.phase = phase_of(*std::max_element(counts.begin(), counts.end()));
  outputs.place_loads.resize(placement_.logical_of.size());
  std::vector<double> us(static_cast<std::size_t>(repeat));
  std::mutex mutex;

  const auto upload_tokens = [&](const ExpertRank& rank, StreamView stream) {
    const std::size_t holder = holder_of(rank);
    const std::int64_t first =
        std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(holder), std::int64_t{0}) *
        shape.hidden;
    const std::vector<std::byte> bytes =
        encode({hidden_states.begin() + first, hidden_states.begin() + first + counts[holder] * shape.hidden},
               layer_options_.dtype);
    DeviceTensor x(*stream.context, layer_options_.dtype, {counts[holder], shape.hidden});
    write_blocking(stream, x.view.buffer, bytes.data(), bytes.size());
    return x;
  };
  group_.run([&](Communicator& world) {
    const ExpertRank rank = place_of(world);
    const StreamView stream = world.stream();
    ParallelLayer& layer = *layers_[static_cast<std::size_t>(world.rank())];
    const std::size_t holder = holder_of(rank);
    const DeviceTensor x = upload_tokens(rank, stream);
    const AgreedStep step = layer.agree({}, counts[holder]);
    const ObservedTensors observed(*stream.context, shape, counts[holder]);
    ParallelLayer::Forward forward;
    forward.x = x;
    forward.out = observed.out;
    ParallelLayer::Forward telling = forward;
    telling.routed_out = observed.routed;
    telling.router_logits = observed.logits;
    telling.topk_ids = observed.ids;
    telling.topk_weights = observed.weights;
    LoadRecord loads(stream, 1, rank.local_experts);
    telling.expert_load = loads.counts(0, outputs.phase);
    layer.forward(telling, step);
    world.wait(stream.record());
    if (rank.sharding == ExpertSharding::experts || rank.ep.rank() == 0) {  // else every rank has all rows
      const std::vector<std::int64_t> mine = read_loads(stream, loads, outputs.phase);
      std::copy(mine.begin(), mine.end(), outputs.place_loads.begin() + rank.first_expert);
    }
    for (int i = 0; i < repeat; ++i) {
      world.share("start", {});
      const std::uint64_t syncs = host_syncs(), bytes = received(false), crossed = received(true);
      world.share("go", {});
      const auto start = std::chrono::steady_clock::now();
      layer.forward(forward, step);
      world.share("enqueued", {});
      if (world.rank() == 0) {
        times.host_syncs = (host_syncs() - syncs) / static_cast<std::uint64_t>(world.size());
        times.bytes_exchanged = received(false) - bytes;
        times.bytes_between_nodes = received(true) - crossed;
      }
      world.share("counted", {});
      stream.finish();
      const double mine = milliseconds_since(start) * 1e3;
      const std::lock_guard lock(mutex);
      us[static_cast<std::size_t>(i)] = std::max(us[static_cast<std::size_t>(i)], mine);
    }
    world.wait(stream.record());
    if (options_.replace_allreduce || rank.tp.rank() == 0) observed.read(stream, of_holder[holder]);
  });
  const std::vector<Stream> recording = devices_.traced();
  group_.set_streams({recording.begin(), recording.end()});
  Progress progress("loading experts of rank 0");
  group_.run([&](Communicator& world) {
    const ExpertRank rank = place_of(world);
    const DeviceTensor x = upload_tokens(rank, world.stream());
    const DeviceTensor out(*world.stream().context, DType::f32, {x.view.shape[0], shape.hidden});
    ParallelLayer::Forward forward;
    forward.x = x;
    forward.out = out;
    layers_[static_cast<std::size_t>(world.rank())]->forward(forward);
    world.wait(world.stream().record());
  });
  group_.set_streams(devices_.views());

  std::sort(us.begin(), us.end());
  times.us = us;
  for (const LayerOutputs& part : of_holder) {
    const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
    append(outputs.output, part.output);
    append(outputs.routed_output, part.routed_output);
    append(outputs.router_logits, part.router_logits);
    append(outputs.topk_weights, part.topk_weights);
    append(outputs.topk_ids, part.topk_ids);
  }
  count_experts(shape, outputs);
  return outputs;
}

SessionReport ParallelSession::report() {
  SessionReport report;
  for (const StreamView& stream : devices_.views()) report.devices.push_back(stream.device->caps);
  report.rank_places = devices_.places;
  const StrategyChoice& strategy = layers_.front()->last_strategy();
  report.strategy = name(strategy.kind);
  report.strategy_reason = strategy.reason;
  report.combine_form = name(combine_form(strategy.kind, layer_options_.dtype, wire_format_from_name(options_.wire)));
  for (std::int32_t to = 0; to < group_.size(); ++to)
    for (std::int32_t from = 0; from < group_.size(); ++from)
      if (from != to) {
        const TransportChoice& choice = group_.transport(from, to);
        report.transports.push_back(fmt::format("{} -> {}: {}: {}", from, to, name(choice.kind), choice.reason));
      }
  report.layer = layers_.front()->report();
  report.layer.weight_bytes = report.layer.read_bytes = 0;
  report.layer.quantization = {};
  report.layer.resident_experts = 0, report.layer.resident_bytes = 0;
  for (const auto& layer : layers_) {
    const ResidencyCounts residency = layer->residency();
    report.residency.hits += residency.hits, report.residency.misses += residency.misses;
    report.residency.fetched_bytes += residency.fetched_bytes;
    report.layer.resident_experts += layer->report().resident_experts;
    report.layer.resident_bytes += layer->report().resident_bytes;
    report.layer.quantization.add(layer->report().quantization);
    report.layer.weight_bytes += layer->report().weight_bytes;
    report.layer.read_bytes += layer->report().read_bytes;
    report.workspace_bytes += layer->workspace_bytes();
  }
  for (const auto& context : devices_.contexts) {
    report.programs_built += context->counters().programs_built;
    report.programs_from_disk += context->counters().programs_from_disk;
    for (const WorkSummary& row : context->trace()->summary()) report.kernels.push_back(row);
  }
  return report;
}

}  // namespace

std::unique_ptr<LayerSession> open_parallel_session(const LayerOptions& options) {
  return std::make_unique<ParallelSession>(options);
}

}  // namespace moecl::cli
