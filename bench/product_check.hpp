#pragma once
#include <cstddef>
#include <vector>

#include "bench/product_case.hpp"

namespace moecl::bench {

/// Compares a sample of the elements of out [T * K, N], rows by expert, with double precision.
/// @param out  the type of the elements in `raw`
/// Errors: device_error  an element is off by more than f32 sums can be, or sums of f8 in tensor cores, beside the
/// rounding of `out`. Activations with group scales are not compared.
void check_product(const ModelCase& model, Which which, const ModelWeights& weights, const Routing& routing, DType out,
                   const std::vector<std::byte>& raw);

}  // namespace moecl::bench
