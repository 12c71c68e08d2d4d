#pragma once
// The first product of experts, and the steps between the first and the second product: activation and quantization.
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

/// The steps that follow a first product.
struct AfterProduct {
  gated_activation::Args activation;  ///< applied to the product's rows
  quantize_groups::Args codes = {};   ///< quantizes the activated rows; absent: they stay plain
};

/// Which of the steps of AfterProduct the kernels of the product do themselves.
struct TakenOver {
  bool activation = true, codes = true;
};
/// Plans of products that take over the same steps. Each product has one matrix, or one segment of experts.
struct ActivatedPlans {
  TakenOver taken;
  std::vector<grouped_gemm::Plan> products;
};

/// Plans of the steps before the second product, for passes of one form.
struct FirstPlans {
  Planned<quantize_groups::Plan> input, codes;
  PlannedVariants<ActivatedPlans> products;
  Planned<LaunchPlan> activation;
};

/// Enqueues all steps of `after`. Async: a kernel for each step
void enqueue(StreamView stream, const AfterProduct& after, FirstPlans& plans);
/// Enqueues the steps of `after` that the product has not taken over.
void enqueue_left(StreamView stream, const AfterProduct& after, TakenOver taken, FirstPlans& plans);

/// The steps that a product of this variant can take over, restricted to those set in `others`.
TakenOver taken_over(const std::string& variant, const grouped_gemm::Args& product, const AfterProduct& after,
                     const Device& device, TakenOver others);
/// `product` with the arguments of the steps in `taken`.
grouped_gemm::Args taking_over(grouped_gemm::Args product, const AfterProduct& after, TakenOver taken);

/// Enqueues `products` products, each of one matrix or of a segment of experts, and the steps of `after`. The products'
/// kernels take over a step only if all of the products can. Async: a kernel for each product, and for each step left
/// @param product  makes the arguments of the i-th product, since keeping all of them takes memory.
/// @param config  decides the choice of variants. @param before  enqueues what the i-th product needs first
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
