#pragma once
#include <cstddef>
#include <vector>

#include "bench/product_case.hpp"

namespace moecl::bench {

/// Compares some elements of out [T * K, N], rows by expert, with double precision.
/// @param out  `raw` holds elements of it
/// Errors: device_error  one is off by more than f32 sums can be, or those of f8 in tensor cores, beside the rounding
/// of `out`. Activations with scales of groups are not compared.
void check_product(const ModelCase& model, Which which, const ModelWeights& weights, const Routing& routing, DType out,
                   const std::vector<std::byte>& raw);

}  // namespace moecl::bench
