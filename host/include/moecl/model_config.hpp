#pragma once
#include <moecl/dtype.hpp>
#include <moecl/moe_weights.hpp>
#include <moecl/quantization_config.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace moecl {

/// Tensor names of one feed-forward network: down(activation(gate x) * up x), or without a gate
/// down(activation(up x)). gate, up and down are also called w1, w3 and w2.
struct ExpertTensorNames {
  std::string gate;                           ///< Shape: [I, H]; empty: there is none
  std::string up;                             ///< Shape: [I, H]; if it is gate's name: one tensor [2I, H] holds both
  std::string down;                           ///< Shape: [H, I]
  std::string gate_bias, up_bias, down_bias;  ///< empty: none. Shapes: [I], [I], [H]; gate and up may share a name
  bool stacked = false;                       ///< each tensor has a leading dimension E
  bool transposed = false;                    ///< the matrices are stored as [H, I] (or [H, 2I]) and [I, H]
  bool alternating = false;  ///< in a tensor of both, rows of gate and up alternate instead of standing in halves
  bool flat = false;         ///< each matrix is [I, H], down too; stacked: [E * I, H]
};

/// Tensor names of one layer's MoE block; empty where the family has no such tensor.
struct MoeTensorNames {
  std::string router;          ///< Shape: [E, H]; empty: none is read
  std::string router_bias;     ///< Shape: [E]
  std::string selection_bias;  ///< Shape: [E]
  /// The forms in which experts may be stored, the released one first. The form that the checkpoint has is read.
  /// "{expert}" stands for the expert's number.
  std::vector<ExpertTensorNames> experts;
  ExpertTensorNames shared;  ///< of width MoeShape::shared_intermediate
  std::string shared_gate;   ///< Shape: [1, H]; the shared expert's output is multiplied by sigmoid(gate x)
  std::string expert_table;  ///< experts by token id. Shape: [V, K], integers
  std::string const_alpha_1, const_alpha_2, const_v;  ///< of constant experts. Shapes: [const_experts, L]
};

/// What one layer's MoE block computes and where its weights are.
struct MoeLayerConfig {
  std::string family;
  int layer = 0;
  MoeShape shape;
  MoeTensorNames names;
  std::optional<DType> dtype;       ///< ModelConfig::dtype
  QuantizationConfig quantization;  ///< absent when the checkpoint is not quantized

  /// Scheme of the routed experts; none() when they are plain.
  QuantScheme expert_scheme() const;
  QuantScheme shared_scheme() const;  ///< of the shared experts
};

/// Which decoder layers have experts: first <= layer <= last, layer % step == phase, and not in `dense`; or just
/// `only`.
struct SparseLayers {
  std::int64_t first = 0, last = INT64_MAX;
  std::int64_t step = 1;
  std::int64_t phase = 0;
  std::vector<std::int64_t> dense;                ///< ascending
  std::optional<std::vector<std::int64_t>> only;  ///< ascending

  /// Whether that decoder layer has experts.
  bool contains(std::int64_t layer) const;
};

/// What moecl needs of a Hugging Face config.json, checked.
struct ModelConfig {
  std::string family;  ///< config.json's model_type
  int num_layers = 0;
  std::optional<DType> dtype;  ///< as config.json says; each tensor's own dtype takes precedence
  SparseLayers sparse;
  /// For the layers with experts; "{layer}" in the names stands for the layer's number.
  MoeLayerConfig moe;
  std::map<int, MoeLayerConfig> varied;  ///< those of them that differ from `moe` by lists in config.json

  /// @param json    Text of a config.json.
  /// @param origin  What messages call it: its path.
  /// @param router_spec  Text of a router spec (host/ROUTER_SPEC.md). Its fields replace those of the config; with it
  ///                     the family need not be known. Empty: none.
  /// Errors: invalid_data  bad JSON, a field missing, of a wrong type, or contradicting another
  ///         unsupported   unknown model_type, activation or routing method; the message lists the known ones
  static ModelConfig parse(const std::string& json, const std::string& origin, const std::string& router_spec = {});
  /// `parse` of the texts of files.
  /// Errors: io_error, and those of `parse`
  static ModelConfig load(const std::string& path, const std::string& router_spec_path = {});

  /// False also where there is no such decoder layer.
  bool has_experts(int layer) const;
  /// Errors: invalid_data  no layer has experts
  int first_moe_layer() const;
  /// Errors: invalid_argument  the model has no such layer, or the layer is dense
  MoeLayerConfig layer(int layer) const;
};

}  // namespace moecl
