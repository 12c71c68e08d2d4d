#include "host/layer/activated_product.hpp"

#include <moecl/context.hpp>

namespace moecl {
namespace {

grouped_gemm::Args activated(grouped_gemm::Args product, const AfterProduct& after) {
  product.activation = after.activation.activation;
  product.out = after.activation.out;
  return product;
}

}  // namespace

void enqueue(StreamView stream, const AfterProduct& after, FirstPlans& plans) {
  enqueue_left(stream, after, {false, false}, plans);
}

TakenOver taken_over(const std::string& variant, const grouped_gemm::Args& product, const AfterProduct& after,
                     const Device& device, TakenOver others) {
  TakenOver taken;
  taken.activation =
      others.activation && grouped_gemm::fuses_activation(variant, product, after.activation.activation, device);
  taken.codes = others.codes && taken.activation && after.codes.x.present() &&
                grouped_gemm::fuses_quantization(variant, activated(product, after), after.codes, device);
  return taken;
}

grouped_gemm::Args taking_over(grouped_gemm::Args product, const AfterProduct& after, TakenOver taken) {
  if (taken.activation) product = activated(product, after);
  if (taken.codes) product.quantization = after.codes;
  return product;
}

void enqueue_left(StreamView stream, const AfterProduct& after, TakenOver taken, FirstPlans& plans) {
  if (!taken.activation) enqueue_planned(stream, after.activation, plans.activation);
  if (!taken.codes && after.codes.x.present()) enqueue_planned(stream, after.codes, plans.codes);
}

}  // namespace moecl
