#pragma once
// One MoE layer of a checkpoint on a device, and what a forward pass of it gave: shared by `run` and `verify`.
#include <moecl/checkpoint.hpp>
#include <moecl/moe_layer.hpp>

#include <optional>
#include <string>
#include <vector>

#include "tools/device_options.hpp"

namespace moecl::cli {

struct LayerOptions {
  std::string model_dir;
  std::optional<int> layer;    ///< default: the first one with experts
  std::optional<DType> dtype;  ///< default: the checkpoint's own
  std::string act_quant = "auto", strategy = "auto", quantize;
  int ranks = 1, tp = 1, dp = 1;
  bool expert_parallel = false;
  std::vector<std::int64_t> tokens_per_rank;
  DeviceOptions device;

  /// Options that `run` and `verify` share; `model_dir` is left to the command.
  void add_to(CLI::App& command);
  /// Errors: invalid_argument  options that contradict each other or that this version cannot do
  void check() const;
};

/// Tensors of one forward pass on the host, in the input's token order.
struct LayerOutputs {
  std::int64_t tokens = 0;
  std::vector<float> output, routed_output, router_logits, topk_weights;
  std::vector<std::int32_t> topk_ids, expert_counts;
};

struct ForwardTimes {
  std::vector<double> us;        ///< one a timed pass, sorted
  std::uint64_t host_syncs = 0;  ///< blocking calls in one forward
};

class LayerSession {
 public:
  explicit LayerSession(const LayerOptions& options);

  /// A pass that also tells what the router did, `repeat` timed ones, and a traced one for the kernels' times.
  /// @param hidden_states  T * H values, rounded to the session's dtype on the way in
  LayerOutputs run(const std::vector<float>& hidden_states, int repeat, ForwardTimes& times);

  const MoeLayerConfig& config() const { return config_; }
  const MoeLayer& layer() const { return *layer_; }
  Context& context() { return *context_; }
  DType dtype() const { return dtype_; }
  double load_ms() const { return load_ms_; }

 private:
  Checkpoint checkpoint_;
  MoeLayerConfig config_;
  DType dtype_ = DType::f32;
  std::unique_ptr<Context> context_;
  Stream stream_;
  std::optional<MoeLayer> layer_;
  double load_ms_ = 0;
};

}  // namespace moecl::cli
