#pragma once
#include <moecl/checkpoint.hpp>
#include <moecl/model_config.hpp>
#include <moecl/moe_layer.hpp>
#include <moecl/moe_weights.hpp>

#include <cstdint>
#include <optional>
#include <vector>

namespace moecl {

/// Finds and checks the weights of one layer, as views into its checkpoint. Reads the bytes of group indices and single
/// scales, but of no matrix.
///
/// Every matrix has the shape that the config gives it. A matrix that quantization_config leaves plain is f32, f16 or
/// bf16; others are stored as quantization_config says. The views keep the files open that they refer to.
///
/// Errors: invalid_data  a tensor is missing, or its dtype or shape is not what the config says
///         unsupported   a quantized matrix is stored in a way that cannot be described
///         io_error      a shard is missing or unreadable
MoeWeights find_layer_weights(const Checkpoint& checkpoint, const MoeLayerConfig& config);

/// The same with the routed experts of one expert-parallel rank only. Shards of other experts are not opened, except
/// for their static input scales.
///
/// @param expert_ids  Which experts, in the order wanted; may repeat (replicas). Range: [0, E)
/// Errors: invalid_argument  an id is out of range
MoeWeights find_layer_weights(const Checkpoint& checkpoint, const MoeLayerConfig& config,
                              const std::vector<std::int64_t>& expert_ids);

/// The storage type of a layer of these weights, if its caller names none. Plain experts: the type of their weights.
/// Quantized experts, or none: the type of the router. But an f32 router says nothing about quantized experts; these
/// take `model`, the type in config.json, or without it the type of their scales if that has 16 bits.
DType stored_dtype(const MoeWeights& weights, std::optional<DType> model = {});

/// The options that a checkpoint implies: stored_dtype, and activations quantized as quantization_config says; for the
/// shared experts only if their weights are quantized too. `moecl run` and the C interface start from these options.
MoeLayerOptions stored_options(const MoeLayerConfig& config, const MoeWeights& weights);

}  // namespace moecl
