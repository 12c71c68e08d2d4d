#pragma once
#include <moecl/model_config.hpp>
#include <moecl/moe_weights.hpp>

#include "host/checkpoint/layer_tensors.hpp"

namespace moecl {

/// The matrices, biases and static scales of one feed-forward network.
ExpertMatrices find_network(const LayerTensors& find, const ExpertTensorNames& names, const NetworkParts& parts);

}  // namespace moecl
