#pragma once
// The first product of experts and what stands between it and the second one.
#include <moecl/device.hpp>
#include <moecl/gated_activation.hpp>
#include <moecl/grouped_gemm.hpp>
#include <moecl/quantize_groups.hpp>

#include <memory>
#include <string>
#include <vector>

#include "host/layer/planned.hpp"
#include "kernels_cl/common/next_variant.hpp"

namespace moecl {

/// What follows a product.
struct AfterProduct {
  gated_activation::Args activation;  ///< of the product's rows
  quantize_groups::Args codes = {};   ///< absent where the activated rows stay
};

/// What the kernels of a product take over of what follows it.
struct TakenOver {
  bool activation = true, codes = true;
};
/// Products that take over the same, each of one matrix or of a segment of experts.
struct ActivatedPlans {
  TakenOver taken;
  std::vector<grouped_gemm::Plan> products;
};

/// Plans of the steps up to the second product, for passes of one form.
struct FirstPlans {
  Planned<quantize_groups::Plan> input, codes;
  PlannedVariants<ActivatedPlans> products;
  Planned<LaunchPlan> activation;
};

/// Async: a kernel for each step
void enqueue(StreamView stream, const AfterProduct& after, FirstPlans& plans);
/// What is left of what follows.
void enqueue_left(StreamView stream, const AfterProduct& after, TakenOver taken, FirstPlans& plans);

/// What such a product takes over, at most `others`.
TakenOver taken_over(const std::string& variant, const grouped_gemm::Args& product, const AfterProduct& after,
                     const Device& device, TakenOver others);
/// The product with what it takes over.
grouped_gemm::Args taking_over(grouped_gemm::Args product, const AfterProduct& after, TakenOver taken);

/// Products of one matrix, or of a segment of experts each, to the rows of the activation. Its kernels take over the
/// steps that all of them can. Async: a kernel for each product, and for each step that is left
/// @param product  makes the arguments of the i-th: to keep them all takes memory. @param config  what variants are
/// chosen by. @param before   enqueues what the i-th product needs
template <class Product, class Before>
void enqueue_activated(StreamView stream, std::size_t products, const Product& product, const AfterProduct& after,
                       const grouped_gemm::Config& config, FirstPlans& plans, const Before& before) {
  const Device& device = *stream.device;
  const auto decide = [&] {
    ActivatedPlans made;
    std::vector<std::string> variants(products);
    for (std::size_t i = 0; i < products; ++i) {
      const grouped_gemm::Args args = product(i);
      variants[i] = grouped_gemm::select(args, config, device);
      made.taken = taken_over(variants[i], args, after, device, made.taken);
    }
    for (std::size_t i = 0; i < products; ++i)
      made.products.push_back(grouped_gemm::plan(taking_over(product(i), after, made.taken), {variants[i]}, device));
    return made;
  };
  with_next_variant(stream, [&] {
    const std::shared_ptr<const ActivatedPlans> first = plans.products.find(device, decide);
    for (std::size_t i = 0; i < products; ++i) {
      before(i);
      grouped_gemm::enqueue(stream, first->products[i], taking_over(product(i), after, first->taken));
    }
    enqueue_left(stream, after, first->taken, plans);
  });
}
template <class Product>
void enqueue_activated(StreamView stream, std::size_t products, const Product& product, const AfterProduct& after,
                       FirstPlans& plans) {
  enqueue_activated(stream, products, product, after, {}, plans, [](std::size_t) {});
}

}  // namespace moecl
