#pragma once
#include <vector>

#include "bench/model_operands.hpp"

namespace moecl::bench {

/// Activations of the first products as raw values of their type: the same for everybody who computes them.
std::vector<std::byte> product_activations(const ModelCase& model, std::int64_t tokens);
/// What each of those numbers is multiplied by: quantized ones have a scale, one for all tokens.
double activation_scale(const ModelCase& model);

/// Compares some elements of out [T * K, 2I], rows by expert, with double precision.
/// Errors: device_error  one is off by more than f32 sums can be, or those of f8 in tensor cores. Activations with
/// scales of groups are not compared.
void check_product(const ModelCase& model, const ModelWeights& weights, const Routing& routing,
                   const std::vector<float>& out);

}  // namespace moecl::bench
