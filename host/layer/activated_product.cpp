#include "host/layer/activated_product.hpp"

#include <moecl/context.hpp>

#include <algorithm>

#include "kernels_cl/common/next_variant.hpp"

namespace moecl {
namespace {

void enqueue_codes(StreamView stream, const AfterProduct& after) {
  if (after.codes.x.present()) quantize_groups::enqueue(stream, after.codes);
}

}  // namespace

void enqueue(StreamView stream, const AfterProduct& after) {
  gated_activation::enqueue(stream, after.activation);
  enqueue_codes(stream, after);
}

namespace {

void enqueue_chosen(StreamView stream, std::vector<grouped_gemm::Args> products, const AfterProduct& after) {
  const DeviceCaps& caps = stream.device->caps;
  const Activation& activation = after.activation.activation;
  const auto all = [&products](const auto& can) { return std::all_of(products.begin(), products.end(), can); };
  const bool activate =
      all([&](const grouped_gemm::Args& args) { return grouped_gemm::fuses_activation(args, activation, {}, caps); });
  if (activate)
    for (grouped_gemm::Args& args : products) args.activation = activation, args.out = after.activation.out;
  const bool quantize = activate && after.codes.x.present() && all([&](const grouped_gemm::Args& args) {
                          return grouped_gemm::fuses_quantization(args, after.codes, {}, caps);
                        });
  for (grouped_gemm::Args& args : products) {
    if (quantize) args.quantization = after.codes;
    grouped_gemm::enqueue(stream, args);
  }
  if (!activate) return enqueue(stream, after);
  if (!quantize) enqueue_codes(stream, after);
}

}  // namespace

void enqueue_activated(StreamView stream, const std::vector<grouped_gemm::Args>& products, const AfterProduct& after) {
  with_next_variant(stream, [&] { enqueue_chosen(stream, products, after); });
}

}  // namespace moecl
