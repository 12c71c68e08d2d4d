#include "host/expert_quantizer.hpp"

#include "runtime/check.hpp"

namespace moecl {

QuantizedExperts quantize_experts(const MoeWeights& weights, const QuantScheme& scheme) {
  QuantizedExperts result;
  result.weights = weights;
  for (ExpertMatrices& expert : result.weights.experts)
    for (WeightMatrix* matrix : {&expert.gate, &expert.up, &expert.down}) {
      require(!matrix->quantized(), "quantize: the experts are quantized already ({})", name(matrix->codes.type));
      *matrix = result.memory.emplace_back(quantize_weights(matrix->plain, scheme.weights, result.error)).matrix;
    }
  return result;
}

}  // namespace moecl
