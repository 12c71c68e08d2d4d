#pragma once
// What a product of a layer's experts multiplies.
#include <cstddef>
#include <vector>

#include "bench/model_case.hpp"
#include "bench/routing.hpp"

namespace moecl::bench {

/// One product of a layer's experts: of gate and up with the routed tokens, or of down with a row for each choice of
/// one.
enum class Which { gate_up, down };

struct ProductShape {
  std::int64_t a_rows, k, n;  ///< a_rows: those that are stored; gate_up gathers its own from them

  ProductShape(const ModelCase& model, Which which, const Routing& routing);
};

/// The activations of a product: numbers in the scheme's type, with their scales.
struct Activations {
  DType dtype = DType::bf16;
  std::int64_t columns = 0;  ///< of storage
  std::int64_t group = 0;    ///< columns of a scale; 0: the scale, if any, is a row's
  DType scale_dtype = DType::f32;
  bool scaled = false;

  Activations(const Scheme& scheme, std::int64_t k);
};

/// Rows that are multiplied, as raw values of their type: the same for everybody who computes the product.
std::vector<std::byte> product_activations(const ModelCase& model, const ProductShape& shape);
/// What each of those numbers is multiplied by: quantized ones have a scale, one for all tokens.
double activation_scale(const ModelCase& model);

}  // namespace moecl::bench
