#pragma once
#include <vector>

#include "bench/model_operands.hpp"

namespace moecl::bench {

/// Rows that are multiplied, as raw values of their type: the same for everybody who computes the product.
std::vector<std::byte> product_activations(const ModelCase& model, const ProductShape& shape);
/// What each of those numbers is multiplied by: quantized ones have a scale, one for all tokens.
double activation_scale(const ModelCase& model);

/// Compares some elements of out [T * K, N], rows by expert, with double precision.
/// @param out  `raw` holds elements of it
/// Errors: device_error  one is off by more than f32 sums can be, or those of f8 in tensor cores, beside the rounding
/// of `out`. Activations with scales of groups are not compared.
void check_product(const ModelCase& model, Which which, const ModelWeights& weights, const Routing& routing, DType out,
                   const std::vector<std::byte>& raw);

}  // namespace moecl::bench
