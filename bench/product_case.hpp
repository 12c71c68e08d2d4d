#pragma once
// The operands of a product of a layer's experts.
#include <cstddef>
#include <vector>

#include "bench/model_case.hpp"
#include "bench/routing.hpp"

namespace moecl::bench {

/// One product of a layer's experts: gate and up on the routed tokens, or down on one row for each choice of a token.
enum class Which { gate_up, down };

struct ProductShape {
  std::int64_t a_rows, k, n;  ///< a_rows: the stored rows; gate_up gathers from them

  ProductShape(const ModelCase& model, Which which, const Routing& routing);
};

/// The activations of a product: numbers in the scheme's type, with their scales.
struct Activations {
  DType dtype = DType::bf16;
  std::int64_t columns = 0;  ///< of storage
  std::int64_t group = 0;    ///< columns per scale; 0: the scale, if any, is a row's
  DType scale_dtype = DType::f32;
  bool scaled = false;

  Activations(const Scheme& scheme, std::int64_t k);
};

/// The rows that are multiplied, as raw values of their type: the same for every implementation of the product.
std::vector<std::byte> product_activations(const ModelCase& model, const ProductShape& shape);
/// The factor of each of those numbers: quantized activations have one scale for all tokens.
double activation_scale(const ModelCase& model);

}  // namespace moecl::bench
