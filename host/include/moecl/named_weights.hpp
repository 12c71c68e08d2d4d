#pragma once
#include <moecl/model_config.hpp>
#include <moecl/moe_weights.hpp>
#include <moecl/tensor_source.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moecl {

/// A layer whose tensors have names of shard and expert, as engines count them: "experts.3.w1.weight" (gate: w1, up:
/// w3, down: w2), with both in one "experts.3.gate_up.weight", with all experts in one "experts.w1.weight" (or
/// "experts.gate_up.weight") with a leading dimension E. Beside it "router.weight", "router.bias",
/// "router.e_score_correction_bias", "router.expert_table", "shared.w1.weight", "shared.w3.weight",
/// "shared.w2.weight", "shared.gate.weight", "const_experts.alpha_1", "const_experts.alpha_2" and "const_experts.v".
///
/// Biases end in ".bias" instead of ".weight"; quantized matrices have the tensors of their StoredForm, as checkpoints
/// name them: "weight_scale", "weight_scale_inv", "weight_zero_point", "weight_scale_2", "input_scale", "qweight",
/// "qzeros", "scales", "g_idx", "weight_packed", "blocks".
///
/// @param quantized   How the experts' matrices are, and the shared ones' unless they come plain; scheme none: plain
/// @param alternating In "gate_up" rows of gate and up alternate instead of standing in halves
/// @param transposed  The experts' matrices are stored as [H, I] (or [H, 2I]) and [I, H]
MoeLayerConfig named_layer(const MoeShape& shape, const QuantizedModules& quantized = {}, bool alternating = false,
                           bool transposed = false);

/// Whose a tensor is.
struct TensorOwner {
  /// How many experts have it.
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
/// By its name alone.
TensorOwner owner_of(const MoeLayerConfig& config, std::string_view tensor);

/// What a layer still needs of an expert, or of all that is no routed expert; empty: nothing. Of tensors that may have
/// several names the usual one; of the forms that experts may have the one of which most is there.
std::vector<std::string> missing_expert_tensors(const TensorSource& source, const MoeLayerConfig& config,
                                                std::int64_t expert);
/// See missing_expert_tensors.
std::vector<std::string> missing_common_tensors(const TensorSource& source, const MoeLayerConfig& config);

/// One routed expert, also a shared one among them, or all that is none, as find_layer_weights has them.
/// Errors: as find_layer_weights
ExpertMatrices find_expert(const TensorSource& source, const MoeLayerConfig& config, std::int64_t expert);
MoeWeights find_common_weights(const TensorSource& source, const MoeLayerConfig& config);  ///< see find_expert

}  // namespace moecl
