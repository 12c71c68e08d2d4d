#pragma once
#include <moecl/checkpoint.hpp>
#include <moecl/model_config.hpp>
#include <moecl/moe_layer.hpp>
#include <moecl/moe_weights.hpp>

#include <cstdint>
#include <optional>
#include <vector>

namespace moecl {

/// Finds and checks the weights of one layer, as views into its checkpoint; reads tensor bytes of no matrix, only group
/// indices and single scales.
///
/// Every matrix has the shape that the config gives it; it is f32, f16 or bf16 where the quantization_config leaves it
/// plain, and as that says elsewhere. The views keep the files open that they refer to.
///
/// Errors: invalid_data  a tensor is missing, or its dtype or shape is not what the config says
///         unsupported   a quantized matrix is stored in a way that cannot be described
///         io_error      a shard is missing or unreadable
MoeWeights find_layer_weights(const Checkpoint& checkpoint, const MoeLayerConfig& config);

/// The same with the routed experts of one expert-parallel rank only; shards of other experts are not even opened, but
/// for their static input scales.
///
/// @param expert_ids  Which experts, in the order wanted; may repeat (replicas). Range: [0, E)
/// Errors: invalid_argument  an id is out of range
MoeWeights find_layer_weights(const Checkpoint& checkpoint, const MoeLayerConfig& config,
                              const std::vector<std::int64_t>& expert_ids);

/// How a layer of these weights is best stored where its caller does not say: in the type of the experts' weights. Of
/// quantized ones, or none, in that of the router; but beside a router in f32, which says nothing of the experts, in
/// `model`, that of config.json, else in that of 16-bit scales.
DType stored_dtype(const MoeWeights& weights, std::optional<DType> model = {});

/// The layer as its checkpoint means it: stored_dtype, and activations quantized as quantization_config says, those of
/// shared experts where these are quantized too. `moecl run` and the C interface begin with it.
MoeLayerOptions stored_options(const MoeLayerConfig& config, const MoeWeights& weights);

}  // namespace moecl
