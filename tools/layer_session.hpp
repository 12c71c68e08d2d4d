#pragma once
// One MoE layer of a checkpoint on its device or devices, and the results of its forward pass. `run` and `verify` share
// it.
#include <moecl/checkpoint.hpp>
#include <moecl/device_tensor.hpp>
#include <moecl/load_record.hpp>
#include <moecl/moe_layer.hpp>
#include <moecl/placement_plan.hpp>
#include <moecl/strategy.hpp>
#include <moecl/trace.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/device_options.hpp"
#include "tools/rank_options.hpp"

namespace moecl::cli {

struct LayerOptions : RankOptions {
  std::string model_dir;
  std::string router_spec;     ///< path of a router spec; empty: none
  std::optional<int> layer;    ///< default: the first one with experts
  std::optional<DType> dtype;  ///< default: the checkpoint's own
  std::string act_quant = "auto", quantize, placement = "linear", shared_sharding = "replicated", residency = "auto",
              missed_experts = "auto", layout = "auto";
  std::vector<double> rank_shares;     ///< proportions of the ranks' experts; empty: equal
  bool measured_shares = false;        ///< proportional to what each rank's device does
  std::optional<ExpertBudget> budget;  ///< --memory-budget, without what --residency says
  int redundant_experts = 0, micro_batches = 1;
  bool sub_devices = false, replace_allreduce = false, several_launches = false, prefetch = false;
  std::string shared_queue = "auto";
  std::vector<std::int64_t> tokens_per_rank;
  DeviceOptions device;

  /// Adds the options that `run` and `verify` share; `model_dir` is left to the command.
  void add_to(CLI::App& command);
  bool has_shares() const { return measured_shares || !rank_shares.empty(); }
  bool has_own_placement() const { return placement != "linear" && placement != "round_robin"; }
  /// Errors: invalid_argument  options that contradict each other or that this version does not support
  void check() const;
};

/// Tensors of one forward pass on the host, in the input's token order.
struct LayerOutputs {
  std::int64_t tokens = 0;
  std::vector<float> output, routed_output, router_logits, topk_weights;
  std::vector<std::int32_t> topk_ids, expert_counts;
  std::vector<std::int64_t> place_loads;  ///< rows that each place received, counted on the devices
  Phase phase = Phase::prefill;           ///< decode: no rank had more than one token
};

struct ForwardTimes {
  std::vector<double> us;             ///< one per timed pass, sorted; with several ranks, the slowest's
  std::uint64_t host_syncs = 0;       ///< blocking calls of one rank in one forward
  std::uint64_t bytes_exchanged = 0;  ///< received by ranks from each other in one forward, summed
  std::uint64_t bytes_between_nodes = 0;
};

/// The choices that were made and their cost, for the summary.
struct SessionReport {
  std::vector<DeviceCaps> devices;  ///< one per rank
  std::string rank_places;          ///< how ranks share devices
  std::string strategy, strategy_reason;
  std::string combine_form = "none";    ///< form of the ranks' results: see CombineForm
  std::vector<std::string> transports;  ///< "0 -> 1: staged: different contexts, ..."
  MoeLayerReport layer;                 ///< of rank 0; weight_bytes, read_bytes and quantization of all ranks
  std::uint64_t workspace_bytes = 0, programs_built = 0, programs_from_disk = 0;
  std::vector<WorkSummary> kernels;  ///< in the traced pass, of all ranks
  std::vector<double> rank_rates;    ///< rows of experts per second of each rank, where measured
  ResidencyCounts residency;         ///< of all passes and ranks, if there is a budget
};

/// A layer of a checkpoint on one device, or one rank of it on each of several.
class LayerSession {
 public:
  /// Errors: as LayerOptions::check, Checkpoint, MoeLayer and ParallelLayer
  static std::unique_ptr<LayerSession> open(const LayerOptions& options);
  virtual ~LayerSession() = default;

  /// Makes a pass that also reads the router's results, `repeat` timed passes, and a traced pass for the kernels'
  /// times. If ranks are processes, only the process of rank 0 gets the outputs.
  /// @param hidden_states  T * H values, rounded to the session's dtype on the way in
  virtual LayerOutputs run(const std::vector<float>& hidden_states, int repeat, ForwardTimes& times) = 0;
  /// Call it after `run`.
  virtual SessionReport report() = 0;
  /// The trace of all contexts; with several, the context's number goes before the file's suffix. Errors: io_error
  virtual void write_trace(const std::string& path) = 0;

  const MoeLayerConfig& config() const { return config_; }
  const PlacementPlan& placement() const { return placement_; }
  DType dtype() const { return layer_options_.dtype; }
  bool quantizes_activations() const { return layer_options_.activations.quantized(); }
  double load_ms() const { return load_ms_; }
  bool has_budget() const { return layer_options_.budget.bytes != 0 || layer_options_.budget.percent != 0; }
  const char* residency_policy() const { return name(layer_options_.budget.policy); }

 protected:
  /// Reads the config; decides the layer's options and the experts' places. Weights are found, but not loaded.
  explicit LayerSession(const LayerOptions& options);
  /// The layer's options, with the recorded loads of the experts at places [first, first + count).
  MoeLayerOptions options_of_places(std::int64_t first, std::int64_t count) const;

  Checkpoint checkpoint_;
  MoeLayerConfig config_;
  MoeLayerOptions layer_options_;
  PlacementPlan placement_;
  std::vector<std::int64_t> recorded_loads_;  ///< with --residency static, by logical expert
  double load_ms_ = 0;
};

/// The first runs on one device; the second on ranks, each with a thread, a queue and a ParallelLayer.
std::unique_ptr<LayerSession> open_single_session(const LayerOptions& options);
std::unique_ptr<LayerSession> open_parallel_session(const LayerOptions& options);

/// Device memory for what a forward pass can report.
struct ObservedTensors {
  DeviceTensor out, routed, logits, ids, weights;

  ObservedTensors(Context& context, const MoeShape& shape, std::int64_t tokens);
  /// Appends to every tensor of `to`. Stops the host.
  void read(StreamView stream, LayerOutputs& to) const;
};

/// The phase of a pass, from the tokens of the rank that has most.
inline Phase phase_of(std::int64_t most_tokens) { return most_tokens <= 1 ? Phase::decode : Phase::prefill; }
/// The loads that a completed pass has counted on one rank. Stops the host.
std::vector<std::int64_t> read_loads(StreamView stream, LoadRecord& record, Phase phase);

/// Milliseconds since `start`, by the host's clock.
double milliseconds_since(std::chrono::steady_clock::time_point start);
/// Counts the tokens of each expert from the chosen ids.
void count_experts(const MoeShape& shape, LayerOutputs& outputs);

}  // namespace moecl::cli
