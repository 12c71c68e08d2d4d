#pragma once
#include <moecl/model_config.hpp>
#include <moecl/moe_weights.hpp>
#include <moecl/tensor_source.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moecl {

/// A layer whose tensors are named by shard and expert, as inference engines count them. One expert:
/// "experts.3.w1.weight" (gate: w1, up: w3, down: w2), or "experts.3.gate_up.weight" for gate and up in one tensor. All
/// experts in one tensor with a leading dimension E: "experts.w1.weight" or "experts.gate_up.weight". The others:
/// "router.weight", "router.bias", "router.e_score_correction_bias", "router.expert_table", "shared.w1.weight",
/// "shared.w3.weight", "shared.w2.weight", "shared.gate.weight", "const_experts.alpha_1", "const_experts.alpha_2" and
/// "const_experts.v".
///
/// Biases end in ".bias" instead of ".weight"; quantized matrices have the tensors of their StoredForm, as checkpoints
/// name them: "weight_scale", "weight_scale_inv", "weight_zero_point", "weight_scale_2", "input_scale", "qweight",
/// "qzeros", "scales", "g_idx", "weight_packed", "blocks".
///
/// @param quantized   How the experts' matrices are quantized, and the shared ones' unless they come plain; scheme
///                    none: plain
/// @param alternating In "gate_up" rows of gate and up alternate instead of standing in halves
/// @param transposed  The experts' matrices are stored as [H, I] (or [H, 2I]) and [I, H]
MoeLayerConfig named_layer(const MoeShape& shape, const QuantizedModules& quantized = {}, bool alternating = false,
                           bool transposed = false);

/// The part of a layer that a tensor belongs to.
struct TensorOwner {
  /// Which experts or other parts the tensor belongs to.
  enum class Kind : std::uint8_t {
    nobody,        ///< of another layer, or of another part of the model
    common,        ///< of the router or the shared experts
    expert,        ///< of one routed expert
    every_expert,  ///< of all of them
    fused_shared   ///< of the shared experts, which are extra routed ones
  } kind = Kind::nobody;
  std::int64_t expert = 0;

  friend bool operator==(const TensorOwner& a, const TensorOwner& b) noexcept {
    return a.kind == b.kind && a.expert == b.expert;
  }
};
/// The owner of a tensor, by its name alone.
TensorOwner owner_of(const MoeLayerConfig& config, std::string_view tensor);

/// Names of the tensors that are still missing for an expert, or for all but the routed experts; empty: none. A tensor
/// that may have several names is given by its usual one. If experts may have several forms, the form counts of which
/// most tensors are present.
std::vector<std::string> missing_expert_tensors(const TensorSource& source, const MoeLayerConfig& config,
                                                std::int64_t expert);
/// See missing_expert_tensors.
std::vector<std::string> missing_common_tensors(const TensorSource& source, const MoeLayerConfig& config);

/// One routed expert (also a fused shared one), or all but the routed experts, as find_layer_weights returns them.
/// Errors: as find_layer_weights
ExpertMatrices find_expert(const TensorSource& source, const MoeLayerConfig& config, std::int64_t expert);
MoeWeights find_common_weights(const TensorSource& source, const MoeLayerConfig& config);  ///< see find_expert

}  // namespace moecl
