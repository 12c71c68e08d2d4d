#include <moecl/error.hpp>
#include <moecl/layer_weights.hpp>
#include <moecl/parallel_layer.hpp>
#include <moecl/select_strategy.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>
#include <numeric>

#include "tools/layer_session.hpp"
#include "tools/progress.hpp"
#include "tools/rank_devices.hpp"
#include "tools/share_cores.hpp"
#include "tools/tensor_values.hpp"

namespace moecl::cli {
namespace {

/// Shares a text of each rank. @return  the texts of all ranks
std::vector<std::string> share_text(Communicator& world, const std::string& mine) {
  std::vector<std::int64_t> words(1 + (mine.size() + 7) / 8);
  words[0] = static_cast<std::int64_t>(mine.size());
  std::memcpy(words.data() + 1, mine.data(), mine.size());
  std::vector<std::string> all;
  for (const std::vector<std::int64_t>& of : world.share("report", words))
    all.emplace_back(reinterpret_cast<const char*>(of.data() + 1), static_cast<std::size_t>(of[0]));
  return all;
}

/// A process's report about its ranks, for the summary.
nlohmann::json report_of(const std::vector<std::unique_ptr<ParallelLayer>>& layers, const RankDevices& devices,
                         const RankGroup& group) {
  nlohmann::json of = {{"layers", nlohmann::json::array()}, {"transports", nlohmann::json::array()}};
  for (const auto& layer : layers) {
    if (layer == nullptr) continue;
    const MoeLayerReport report = layer->report();
    const QuantizationError& error = report.quantization;
    const ResidencyCounts residency = layer->residency();
    of["layers"].push_back({{"weights", report.weight_bytes},
                            {"read", report.read_bytes},
                            {"workspace", layer->workspace_bytes()},
                            {"resident", report.resident_experts},
                            {"resident_bytes", report.resident_bytes},
                            {"hits", residency.hits},
                            {"misses", residency.misses},
                            {"fetched_bytes", residency.fetched_bytes},
                            {"prefetched", residency.prefetched},
                            {"prefetched_hits", residency.prefetched_hits},
                            {"largest_difference", error.largest_difference},
                            {"largest", error.largest},
                            {"sum_squared_differences", error.sum_squared_differences},
                            {"sum_squared", error.sum_squared}});
  }
  for (const std::int32_t to : group.local_ranks())
    for (std::int32_t from = 0; from < group.size(); ++from)
      if (from != to) {
        const TransportChoice& choice = group.transport(from, to);
        of["transports"].push_back(fmt::format("{} -> {}: {}: {}", from, to, name(choice.kind), choice.reason));
      }
  std::uint64_t built = 0, cached = 0;
  of["kernels"] = nlohmann::json::array();
  for (const auto& context : devices.contexts) {
    built += context->counters().programs_built;
    cached += context->counters().programs_from_disk;
    for (const WorkSummary& row : context->trace()->summary())
      of["kernels"].push_back({row.name, row.variant, row.kind, row.count, row.total_us});
  }
  of["programs"] = {built, cached};
  return of;
}

class ParallelSession final : public LayerSession {
 public:
  explicit ParallelSession(const LayerOptions& options)
      : LayerSession(options),
        options_(options),
        sharing_(options.sub_devices
                     ? ""
                     : share_cores(options.launch.process_here(), options.launch.processes_here(options.ranks))),
        devices_(options.device, options.ranks, options.sub_devices, options.launch.local(options.ranks)),
        group_(options.group(devices_.views())) {}

  LayerOutputs run(const std::vector<float>& hidden_states, int repeat, ForwardTimes& times) override;
  SessionReport report() override { return report_; }
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
  /// The index in `deal`'s counts of the tokens that a rank has.
  std::size_t holder_of(std::int32_t rank) const {
    return static_cast<std::size_t>(options_.replace_allreduce ? rank : rank / options_.tp);
  }
  /// Whether that rank reports the results of its tokens.
  bool speaks(std::int32_t rank) const { return options_.replace_allreduce || rank % options_.tp == 0; }
  bool is_first_here(const Communicator& world) const { return world.rank() == group_.local_ranks().front(); }
  void collect(Communicator& world, const ObservedTensors& observed, const std::vector<std::int64_t>& counts,
               LayerOutputs& outputs) const;
  void merge(const std::vector<nlohmann::json>& processes);
  void load();
  /// Expert rows per second of each rank, if every expert gets as many rows as with `tokens` tokens.
  std::vector<double> measured_rates(std::int64_t tokens);
  std::uint64_t host_syncs() const {
    std::uint64_t sum = 0;
    for (const auto& context : devices_.contexts) sum += context->counters().host_syncs;
    return sum;
  }
  /// Bytes that ranks of this process have received so far; with `between_nodes` only those from other nodes.
  std::uint64_t received(bool between_nodes) {
    std::uint64_t sum = 0;
    const std::int32_t node = options_.ranks_per_node();
    for (const std::int32_t to : group_.local_ranks())
      for (std::int32_t from = 0; from < group_.size(); ++from)
        if (!between_nodes || to / node != from / node) sum += group_.communicator(to).bytes_received(from);
    return sum;
  }

  LayerOptions options_;
  std::string sharing_;  ///< how cores are shared; set before the devices open
  RankDevices devices_;
  RankGroup group_;
  std::vector<std::unique_ptr<ParallelLayer>> layers_;  ///< by rank; null for ranks of other processes
  SessionReport report_;
};

SharedSharding shared_sharding_from_name(const std::string& text) {
  if (text == "tokens") return SharedSharding::tokens;
  return text == "intermediate" ? SharedSharding::intermediate : SharedSharding::replicated;
}

/// The tokens of each dp rank; if the ranks of a tp group have different tokens, of each rank.
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
  layers_.clear();
  layers_.resize(static_cast<std::size_t>(options_.ranks));
  Progress progress("loading experts of rank 0");
  group_.run([&](Communicator& world) {
    const ExpertRank rank = place_of(world);
    const auto first = placement_.logical_of.begin() + rank.first_expert;
    std::vector<std::int64_t> mine(first, first + rank.local_experts);
    while (!mine.empty() && mine.back() < 0) mine.pop_back();  // free places
    ParallelPlan plan = options_.plan();
    plan.placement = placement_;
    plan.shared_sharding = shared_sharding_from_name(options_.shared_sharding);
    plan.replace_allreduce = options_.replace_allreduce;
    if (options_.micro_batches == 2) plan.dbo_prefill_token_threshold = 0;
    layers_[static_cast<std::size_t>(world.rank())] =
        std::make_unique<ParallelLayer>(rank, plan, config_.shape, find_layer_weights(checkpoint_, config_, mine),
                                        options_of_places(rank.first_expert, std::ssize(mine)),
                                        world.rank() == 0 ? LoadProgress(std::ref(progress)) : LoadProgress());
  });
  load_ms_ = milliseconds_since(start);
}

std::vector<double> ParallelSession::measured_rates(std::int64_t tokens) {
  constexpr int passes = 4;  // the first pass compiles
  const MoeShape& shape = config_.shape;
  const std::int64_t rows_each = std::max<std::int64_t>(tokens * shape.router.top_k / shape.experts, 1);
  std::vector<double> rates;
  std::mutex mutex;
  group_.run([&](Communicator& world) {
    const StreamView stream = world.stream();
    ParallelLayer& layer = *layers_[static_cast<std::size_t>(world.rank())];
    const std::int64_t count = layer.expert_places() * rows_each;
    std::vector<std::int32_t> ends;
    for (std::int64_t place = 0; place < layer.expert_places(); ++place)
      ends.push_back(static_cast<std::int32_t>((place + 1) * rows_each));
    const DeviceTensor x(*stream.context, layer_options_.dtype, {count, shape.expert_width()}),
        out(*stream.context, DType::f32, {count, shape.expert_width()}),
        row_ends(*stream.context, DType::i32, {std::ssize(ends)});
    write_blocking(stream, row_ends.view.buffer, ends.data(), ends.size() * sizeof(std::int32_t));
    const Buffer workspace(*stream.context, layer.expert_workspace_bytes(count));
    enqueue_fill(stream, x.view.buffer, 0);
    ExpertRows rows;
    rows.x = x, rows.row_ends = row_ends, rows.out = out, rows.workspace = workspace.view();
    double best_ms = std::numeric_limits<double>::infinity();
    for (int i = 0; i < passes; ++i) {
      world.share("rates", {});  // all devices are busy at the same time, as in passes
      if (count == 0) continue;
      const auto start = std::chrono::steady_clock::now();
      layer.forward_experts(rows);
      stream.finish();
      if (i > 0) best_ms = std::min(best_ms, milliseconds_since(start));
    }
    const auto all = world.share("rates", {static_cast<std::int64_t>(1e3 * static_cast<double>(count) / best_ms)});
    const std::lock_guard lock(mutex);
    rates.clear();
    for (const std::vector<std::int64_t>& of : all) rates.push_back(static_cast<double>(of[0]));
  });
  return rates;
}

/// Brings the outputs of all tokens to rank 0, in the order of the tokens.
void ParallelSession::collect(Communicator& world, const ObservedTensors& observed,
                              const std::vector<std::int64_t>& counts, LayerOutputs& outputs) const {
  const StreamView stream = world.stream();
  const auto mine = static_cast<std::size_t>(world.rank());
  const auto bring = [&](const DeviceTensor& part, auto& to) {
    const std::uint64_t row_bytes = static_cast<std::uint64_t>(part.view.shape[1]) * 4;
    Communicator::Blocks sends, receives;
    std::uint64_t total = 0;
    for (std::int32_t r = 0; r < world.size(); ++r) {
      const std::uint64_t bytes = speaks(r) ? static_cast<std::uint64_t>(counts[holder_of(r)]) * row_bytes : 0;
      sends.offsets.push_back(0);
      sends.bytes.push_back(r == 0 && speaks(world.rank()) ? part.view.size_bytes() : 0);
      receives.offsets.push_back(total);
      receives.bytes.push_back(mine == 0 ? bytes : 0);
      total += receives.bytes.back();
    }
    const Buffer all(*stream.context, total);
    world.all_to_all_v(part.view.buffer, sends, all.view(), receives);
    world.wait(stream.record());
    to.resize(total / 4);
    if (total != 0) read_blocking(stream, all.view(), to.data(), total);
  };
  LayerOutputs here;
  bring(observed.out, here.output);
  bring(observed.routed, here.routed_output);
  bring(observed.logits, here.router_logits);
  bring(observed.ids, here.topk_ids);
  bring(observed.weights, here.topk_weights);
  if (mine != 0) return;
  here.tokens = outputs.tokens;
  here.phase = outputs.phase;
  outputs = std::move(here);
}

LayerOutputs ParallelSession::run(const std::vector<float>& hidden_states, int repeat, ForwardTimes& times) {
  const MoeShape& shape = config_.shape;
  LayerOutputs outputs;
  outputs.tokens = static_cast<std::int64_t>(hidden_states.size()) / shape.hidden;
  const std::vector<std::int64_t> counts = deal(outputs.tokens);
  load();
  if (options_.measured_shares) {
    report_.rank_rates = measured_rates(outputs.tokens);
    placement_ = place_in_shares(shares_by_rates(shape.experts, report_.rank_rates));
    load();
  }
  outputs.phase = phase_of(*std::max_element(counts.begin(), counts.end()));

  const auto upload_tokens = [&](const Communicator& world) {
    const StreamView stream = world.stream();
    const std::size_t holder = holder_of(world.rank());
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
    const StreamView stream = world.stream();
    ParallelLayer& layer = *layers_[static_cast<std::size_t>(world.rank())];
    const std::int64_t tokens = counts[holder_of(world.rank())];
    const DeviceTensor x = upload_tokens(world);
    const AgreedStep step = layer.agree({}, tokens);
    const ObservedTensors observed(*stream.context, shape, tokens);
    ParallelLayer::Forward forward;
    forward.x = x;
    forward.out = observed.out;
    ParallelLayer::Forward telling = forward;
    telling.routed_out = observed.routed;
    telling.router_logits = observed.logits;
    telling.topk_ids = observed.ids;
    telling.topk_weights = observed.weights;
    LoadRecord loads(stream, 1, place_of(world).local_experts);
    telling.expert_load = loads.counts(0, outputs.phase);
    const auto prefetch = [&] {
      if (options_.prefetch) layer.prefetch(forward);
    };
    prefetch();
    layer.forward(telling, step);
    world.wait(stream.record());
    const auto loads_of = world.share("loads", read_loads(stream, loads, outputs.phase));
    std::vector<std::int64_t> nanoseconds;
    for (int i = 0; i < repeat; ++i) {
      world.share("start", {});
      const std::uint64_t syncs = host_syncs(), bytes = received(false), crossed = received(true);
      world.share("go", {});
      const auto start = std::chrono::steady_clock::now();
      prefetch();
      layer.forward(forward, step);
      world.share("enqueued", {});
      std::vector<std::int64_t> counted(3);  // each process counts for its ranks
      if (is_first_here(world))
        counted = {static_cast<std::int64_t>(host_syncs() - syncs), static_cast<std::int64_t>(received(false) - bytes),
                   static_cast<std::int64_t>(received(true) - crossed)};
      const auto all = world.share("counted", counted);
      stream.finish();
      nanoseconds.push_back(static_cast<std::int64_t>(milliseconds_since(start) * 1e6));
      if (world.rank() != 0) continue;
      times.host_syncs = times.bytes_exchanged = times.bytes_between_nodes = 0;
      for (const std::vector<std::int64_t>& of : all) {
        times.host_syncs += static_cast<std::uint64_t>(of[0]);
        times.bytes_exchanged += static_cast<std::uint64_t>(of[1]);
        times.bytes_between_nodes += static_cast<std::uint64_t>(of[2]);
      }
      times.host_syncs /= static_cast<std::uint64_t>(world.size());
    }
    world.wait(stream.record());
    const auto all = world.share("times", nanoseconds);
    if (world.rank() == 0)
      for (int i = 0; i < repeat; ++i) {
        std::int64_t slowest = 0;
        for (const std::vector<std::int64_t>& of : all) slowest = std::max(slowest, of[static_cast<std::size_t>(i)]);
        times.us.push_back(static_cast<double>(slowest) / 1e3);
      }
    collect(world, observed, counts, outputs);
    if (world.rank() != 0) return;
    for (const std::vector<std::int64_t>& of : loads_of)  // ranks with every expert have each counted all rows
      if (outputs.place_loads.size() < placement_.logical_of.size())
        outputs.place_loads.insert(outputs.place_loads.end(), of.begin(), of.end());
  });
  const std::vector<Stream> recording = devices_.traced();
  group_.set_streams({recording.begin(), recording.end()});
  std::vector<nlohmann::json> processes;
  group_.run([&](Communicator& world) {
    const DeviceTensor x = upload_tokens(world);
    const DeviceTensor out(*world.stream().context, DType::f32, {x.view.shape[0], shape.hidden});
    ParallelLayer::Forward forward;
    forward.x = x;
    forward.out = out;
    ParallelLayer& layer = *layers_[static_cast<std::size_t>(world.rank())];
    if (options_.prefetch) layer.prefetch(forward);
    layer.forward(forward);
    world.wait(world.stream().record());
    world.share("traced", {});
    const std::string here = is_first_here(world) ? report_of(layers_, devices_, group_).dump() : std::string();
    const std::vector<std::string> all = share_text(world, here);
    if (!is_first_here(world)) return;
    for (const std::string& text : all)
      if (!text.empty()) processes.push_back(nlohmann::json::parse(text));
  });
  group_.set_streams(devices_.views());
  merge(processes);
  std::sort(times.us.begin(), times.us.end());
  count_experts(shape, outputs);
  return outputs;
}

/// Merges the reports of all processes into the report of this one.
void ParallelSession::merge(const std::vector<nlohmann::json>& processes) {
  const ParallelLayer& mine = *layers_[static_cast<std::size_t>(group_.local_ranks().front())];
  for (int rank = 0; rank < options_.ranks; ++rank)
    report_.devices.push_back(
        devices_.streams[static_cast<std::size_t>(rank) % devices_.streams.size()].view().device->caps);
  report_.rank_places = devices_.places + sharing_;
  const StrategyChoice& strategy = mine.last_strategy();
  report_.strategy = name(strategy.kind);
  report_.strategy_reason = strategy.reason;
  report_.combine_form = name(combine_form(strategy.kind, layer_options_.dtype, wire_format_from_name(options_.wire)));
  report_.layer = mine.report();
  report_.layer.weight_bytes = report_.layer.read_bytes = 0;
  report_.layer.quantization = {};
  report_.layer.resident_experts = 0, report_.layer.resident_bytes = 0;
  for (const nlohmann::json& of : processes) {
    for (const nlohmann::json& layer : of["layers"]) {
      report_.layer.weight_bytes += layer["weights"].get<std::uint64_t>();
      report_.layer.read_bytes += layer["read"].get<std::uint64_t>();
      report_.workspace_bytes += layer["workspace"].get<std::uint64_t>();
      report_.layer.resident_experts += layer["resident"].get<std::int64_t>();
      report_.layer.resident_bytes += layer["resident_bytes"].get<std::uint64_t>();
      report_.residency.hits += layer["hits"].get<std::int64_t>();
      report_.residency.misses += layer["misses"].get<std::int64_t>();
      report_.residency.fetched_bytes += layer["fetched_bytes"].get<std::uint64_t>();
      report_.residency.prefetched += layer["prefetched"].get<std::int64_t>();
      report_.residency.prefetched_hits += layer["prefetched_hits"].get<std::int64_t>();
      report_.layer.quantization.add(
          {layer["largest_difference"], layer["largest"], layer["sum_squared_differences"], layer["sum_squared"]});
    }
    for (const nlohmann::json& transport : of["transports"]) report_.transports.push_back(transport);
    report_.programs_built += of["programs"][0].get<std::uint64_t>();
    report_.programs_from_disk += of["programs"][1].get<std::uint64_t>();
    for (const nlohmann::json& row : of["kernels"])
      report_.kernels.push_back({row[0], row[1], row[2].get<WorkKind>(), row[3], row[4]});
  }
}

}  // namespace

std::unique_ptr<LayerSession> open_parallel_session(const LayerOptions& options) {
  return std::make_unique<ParallelSession>(options);
}

}  // namespace moecl::cli
