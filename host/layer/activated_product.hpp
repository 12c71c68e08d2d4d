#pragma once
// The first product of experts and what stands between it and the second one.
#include <moecl/gated_activation.hpp>
#include <moecl/grouped_gemm.hpp>
#include <moecl/quantize_groups.hpp>

#include <vector>

namespace moecl {

/// What follows a product.
struct AfterProduct {
  gated_activation::Args activation;  ///< of the product's rows
  quantize_groups::Args codes = {};   ///< absent where the activated rows stay
};

/// Async: a kernel for each step
void enqueue(StreamView stream, const AfterProduct& after);
/// Products of one matrix, or of a segment of experts each, to the rows of the activation. Its kernels take over the
/// steps that all of them can. Async: a kernel for each product, and for each step that is left
void enqueue_activated(StreamView stream, const std::vector<grouped_gemm::Args>& products, const AfterProduct& after);

}  // namespace moecl
