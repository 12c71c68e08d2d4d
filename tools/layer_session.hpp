#pragma once
// One MoE layer of a checkpoint on its device or devices, and what a forward pass of it gave: shared by `run` and
// `verify`.
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
  bool measured_shares = false;        ///< by what each rank's device does
  std::optional<ExpertBudget> budget;  ///< --memory-budget, without what --residency says
  int redundant_experts = 0, micro_batches = 1;
  bool sub_devices = false, replace_allreduce = false, several_launches = false, prefetch = false;
  std::string shared_queue = "auto";
  std::vector<std::int64_t> tokens_per_rank;
  DeviceOptions device;

  /// Options that `run` and `verify` share; `model_dir` is left to the command.
  void add_to(CLI::App& command);
  bool has_shares() const { return measured_shares || !rank_shares.empty(); }
  bool has_own_placement() const { return placement != "linear" && placement != "round_robin"; }
  /// Errors: invalid_argument  options that contradict each other or that this version cannot do
  void check() const;
};

/// Tensors of one forward pass on the host, in the input's token order.
struct LayerOutputs {
  std::int64_t tokens = 0;
  std::vector<float> output, routed_output, router_logits, topk_weights;
  std::vector<std::int32_t> topk_ids, expert_counts;
  std::vector<std::int64_t> place_loads;  ///< rows that each place was given, as counted on the devices
  Phase phase = Phase::prefill;           ///< decode: no rank had more than one token
};

struct ForwardTimes {
  std::vector<double> us;             ///< one a timed pass, sorted; of several ranks the slowest's
  std::uint64_t host_syncs = 0;       ///< blocking calls of one rank in one forward
  std::uint64_t bytes_exchanged = 0;  ///< received by ranks from each other in one forward, summed
  std::uint64_t bytes_between_nodes = 0;
};

/// What was chosen and what it took, for the summary.
struct SessionReport {
  std::vector<DeviceCaps> devices;  ///< one a rank
  std::string rank_places;          ///< how ranks share devices
  std::string strategy, strategy_reason;
  std::string combine_form = "none";    ///< of the ranks' results: see CombineForm
  std::vector<std::string> transports;  ///< "0 -> 1: staged: different contexts, ..."
  MoeLayerReport layer;                 ///< of rank 0; weight_bytes, read_bytes and quantization of all ranks
  std::uint64_t workspace_bytes = 0, programs_built = 0, programs_from_disk = 0;
  std::vector<WorkSummary> kernels;  ///< of the traced pass, all ranks
  std::vector<double> rank_rates;    ///< rows of experts that each rank does in a second, where that was measured
  ResidencyCounts residency;         ///< of all passes and ranks, where there is a budget
};

/// A layer of a checkpoint on one device, or one rank of it on each of several.
class LayerSession {
 public:
  /// Errors: as LayerOptions::check, Checkpoint, MoeLayer and ParallelLayer
  static std::unique_ptr<LayerSession> open(const LayerOptions& options);
  virtual ~LayerSession() = default;

  /// A pass that also tells what the router did, `repeat` timed ones, and a traced one for the kernels' times. Where
  /// ranks are processes, the one of rank 0 gets the outputs.
  /// @param hidden_states  T * H values, rounded to the session's dtype on the way in
  virtual LayerOutputs run(const std::vector<float>& hidden_states, int repeat, ForwardTimes& times) = 0;
  /// After `run`.
  virtual SessionReport report() = 0;
  /// Of all contexts; with several, the number of the context goes before the file's suffix. Errors: io_error
  virtual void write_trace(const std::string& path) = 0;

  const MoeLayerConfig& config() const { return config_; }
  const PlacementPlan& placement() const { return placement_; }
  DType dtype() const { return layer_options_.dtype; }
  bool quantizes_activations() const { return layer_options_.activations.quantized(); }
  double load_ms() const { return load_ms_; }
  bool has_budget() const { return layer_options_.budget.bytes != 0 || layer_options_.budget.percent != 0; }
  const char* residency_policy() const { return name(layer_options_.budget.policy); }

 protected:
  /// Reads the config, decides the layer's options and where experts stand; they are found, not loaded.
  explicit LayerSession(const LayerOptions& options);
  /// The layer's options with the loads of the experts at places [first, first + count).
  MoeLayerOptions options_of_places(std::int64_t first, std::int64_t count) const;

  Checkpoint checkpoint_;
  MoeLayerConfig config_;
  MoeLayerOptions layer_options_;
  PlacementPlan placement_;
  std::vector<std::int64_t> recorded_loads_;  ///< of --residency static, by logical expert
  double load_ms_ = 0;
};

/// One device. And ranks: a thread, a queue and a ParallelLayer each.
std::unique_ptr<LayerSession> open_single_session(const LayerOptions& options);
std::unique_ptr<LayerSession> open_parallel_session(const LayerOptions& options);

/// What a forward pass may tell, in device memory.
struct ObservedTensors {
  DeviceTensor out, routed, logits, ids, weights;

  ObservedTensors(Context& context, const MoeShape& shape, std::int64_t tokens);
  /// Appends to every tensor of `to`. Stops the host.
  void read(StreamView stream, LayerOutputs& to) const;
};

/// Of a pass of so many tokens on the rank that has most.
inline Phase phase_of(std::int64_t most_tokens) { return most_tokens <= 1 ? Phase::decode : Phase::prefill; }
/// What a pass, which was waited for, has counted on one rank. Stops the host.
std::vector<std::int64_t> read_loads(StreamView stream, LoadRecord& record, Phase phase);

/// Milliseconds on the host's clock.
double milliseconds_since(std::chrono::steady_clock::time_point start);
/// Tokens of each expert from the chosen ids.
void count_experts(const MoeShape& shape, LayerOutputs& outputs);

}  // namespace moecl::cli
