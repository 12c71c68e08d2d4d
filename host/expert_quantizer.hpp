#pragma once
// The routed experts of an unquantized checkpoint, quantized while they are loaded.
#include <deque>

#include "host/weight_quantizer.hpp"

namespace moecl {

/// Weights whose experts are quantized, with the experts' memory.
struct QuantizedExperts {
  MoeWeights weights;
  QuantizationError error;
  std::deque<QuantizedWeights> memory;  ///< what `weights` has views of; its elements keep their places
};

/// Quantizes every matrix of the routed experts; the rest stays as it is.
///
/// Errors: invalid_argument  an expert is quantized already, or `quantize_weights` says why not; invalid_data  NaN or
///         infinity
QuantizedExperts quantize_experts(const MoeWeights& weights, const QuantScheme& scheme);

}  // namespace moecl
