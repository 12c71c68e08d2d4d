#include <moecl/fused_shared.hpp>
#include <moecl/layer_weights.hpp>
#include <moecl/named_weights.hpp>

#include "host/checkpoint/network_tensors.hpp"
#include "runtime/check.hpp"

namespace moecl {
namespace {

/// The form in which the checkpoint has the experts: found by names, and where forms share names, by shapes. If it has
/// none of the forms, the result is the released one, for the error message.
const ExpertTensorNames& choose_form(const LayerTensors& find, const MoeLayerConfig& config) {
  const ExpertTensorNames* named = nullptr;
  for (const ExpertTensorNames& form : config.names.experts) {
    const NetworkParts parts(form, config.shape.hidden, config.shape.intermediate, config.shape.routed_experts(), 0);
    if (find.fits(parts.up) && find.fits(parts.down)) return form;
    if (named == nullptr && find.has(parts.down)) named = &form;
  }
  return named == nullptr ? config.names.experts.front() : *named;
}

/// The layer's weights with the experts id_of(0) to id_of(count - 1).
template <class IdOf>
MoeWeights find_weights(const Checkpoint& checkpoint, const MoeLayerConfig& config, std::int64_t count, IdOf id_of) {
  const LayerTensors find(checkpoint, config);
  const MoeShape& shape = config.shape;
  MoeWeights weights = find_common_weights(checkpoint, config);
  const ExpertTensorNames& form = choose_form(find, config);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t id = id_of(i);
    require(id >= 0 && id < shape.experts, "expert {} of {}", id, shape.experts);
    weights.experts.push_back(
        id >= shape.routed_experts()
            ? find_expert(checkpoint, config, id)
            : find_network(find, form,
                           NetworkParts(form, shape.hidden, shape.intermediate, shape.routed_experts(), id)));
  }
  return weights;
}

}  // namespace

MoeWeights find_layer_weights(const Checkpoint& checkpoint, const MoeLayerConfig& config) {
  return find_weights(checkpoint, config, config.shape.experts, [](std::int64_t i) { return i; });
}

MoeWeights find_layer_weights(const Checkpoint& checkpoint, const MoeLayerConfig& config,
                              const std::vector<std::int64_t>& expert_ids) {
  return find_weights(checkpoint, config, static_cast<std::int64_t>(expert_ids.size()),
                      [&](std::int64_t i) { return expert_ids[static_cast<std::size_t>(i)]; });
}

DType stored_dtype(const MoeWeights& weights, std::optional<DType> model) {
  const WeightMatrix up = weights.experts.empty() ? WeightMatrix() : weights.experts.front().up;
  if (up.plain.present()) return up.plain.dtype;
  if (weights.router.dtype != DType::f32 || !up.quantized()) return weights.router.dtype;
  if (model) return *model;
  return up.scale.present() && size_bytes(up.scale.dtype) == 2 ? up.scale.dtype : DType::f32;
}

MoeLayerOptions stored_options(const MoeLayerConfig& config, const MoeWeights& weights) {
  MoeLayerOptions options;
  options.dtype = stored_dtype(weights, config.dtype);
  options.warnings = config.quantization.warnings;
  options.activations = config.expert_scheme().activations;
  if (weights.shared.up.quantized()) options.shared_activations = config.shared_scheme().activations;
  return options;
}

}  // namespace moecl
