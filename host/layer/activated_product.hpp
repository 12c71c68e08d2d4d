#pragma once
// The first product of experts and what stands between it and the second one.
#include <moecl/device.hpp>
#include <moecl/gated_activation.hpp>
#include <moecl/grouped_gemm.hpp>
#include <moecl/quantize_groups.hpp>

#include "host/layer/planned.hpp"
#include "kernels_cl/common/next_variant.hpp"

namespace moecl {

/// What follows a product.
struct AfterProduct {
  gated_activation::Args activation;  ///< of the product's rows
  quantize_groups::Args codes = {};   ///< absent where the activated rows stay
};

/// Plans of the steps of experts, for passes of one form.
struct ExpertPlans {
  Planned<quantize_groups::Plan> input, codes;
  Planned<LaunchPlan> activation;
};

/// Async: a kernel for each step
void enqueue(StreamView stream, const AfterProduct& after, ExpertPlans& plans);
/// What the kernels of a product take over of what follows it.
struct TakenOver {
  bool activation = true, codes = true;
};
/// Of one product, at most `others`.
TakenOver taken_over(const grouped_gemm::Args& product, const AfterProduct& after, const DeviceCaps& caps,
                     TakenOver others);
/// That product, and what it takes over.
void enqueue(StreamView stream, grouped_gemm::Args product, const AfterProduct& after, TakenOver taken);
/// What is left of what follows.
void enqueue_left(StreamView stream, const AfterProduct& after, TakenOver taken, ExpertPlans& plans);

/// Products of one matrix, or of a segment of experts each, to the rows of the activation. Its kernels take over the
/// steps that all of them can. Async: a kernel for each product, and for each step that is left
/// @param product  makes the arguments of the i-th: to keep them all takes memory
template <class Product>
void enqueue_activated(StreamView stream, std::size_t products, const Product& product, const AfterProduct& after,
                       ExpertPlans& plans) {
  with_next_variant(stream, [&] {
    TakenOver taken;
    for (std::size_t i = 0; i < products; ++i) taken = taken_over(product(i), after, stream.device->caps, taken);
    for (std::size_t i = 0; i < products; ++i) enqueue(stream, product(i), after, taken);
    enqueue_left(stream, after, taken, plans);
  });
}

}  // namespace moecl
