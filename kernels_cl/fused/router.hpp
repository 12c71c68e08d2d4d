#pragma once
// Sizes and arguments for the kernels that multiply few tokens by the router (router.clh).
#include <moecl/grouped_gemm.hpp>

#include <algorithm>
#include <cstdint>
#include <string>

#include "kernels_cl/common/index_view.hpp"
#include "kernels_cl/fused/router_args.h"
#include "kernels_cl/gemm/grouped_gemm_operands.hpp"
#include "runtime/quotient.hpp"

namespace moecl::router {

constexpr std::int64_t least_slice_k = 64;

/// Length of a slice of K, chosen so that there are about as many parts of the logits as compute units of a GPU. It is
/// the same on all devices, so that the results are too.
inline std::int64_t slice_k(std::int64_t n, std::int64_t k) {
  constexpr std::int64_t wanted_parts = 128;
  const std::int64_t slices = std::max<std::int64_t>(wanted_parts / PackedWeights::panels(n), 1),
                     steps = quotient_up(quotient_up(k, slices), least_slice_k);
  return std::max<std::int64_t>(steps, 1) * least_slice_k;
}

/// Tokens of a part.
inline std::int64_t token_block(std::int64_t tokens) { return tokens <= 1 ? 1 : 8; }
/// The number of parts. A work-group computes one part at a time.
inline std::int64_t parts(std::int64_t tokens, std::int64_t n, std::int64_t k) {
  return PackedWeights::panels(n) * quotient_up(k, slice_k(n, k)) * quotient_up(tokens, token_block(tokens));
}
/// Bytes of the parts, enough for n columns or fewer.
inline std::uint64_t parts_bytes(std::int64_t tokens, std::int64_t n, std::int64_t k) {
  return static_cast<std::uint64_t>(quotient_up(k, least_slice_k) * tokens * n) * sizeof(float);
}

/// Work-items that multiply, as many on every GPU so that sums are the same, and bytes of local memory for the sums.
inline constexpr std::int32_t lanes = 128;
inline std::uint64_t sums_bytes(std::int64_t tokens) {
  constexpr std::uint64_t slice_lanes = 8;
  return slice_lanes * static_cast<std::uint64_t>(token_block(tokens) * PackedWeights::panel_columns) * sizeof(float);
}

/// Bytes of local memory for adding up a token's parts.
inline std::uint64_t added_bytes(std::int64_t n) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(n, 128)) * sizeof(float);
}

/// Why `product` is no product of tokens by one matrix of plain weights of the tokens' type; empty when it is.
inline std::string reject(const grouped_gemm::Args& product) {
  const DType dtype = product.a.dtype;
  if (dtype != DType::f16 && dtype != DType::bf16) return fmt::format("rows are {}", name(dtype));
  const PackedWeights& weights = product.weights;
  if (weights.type != (dtype == DType::f16 ? CodeType::f16 : CodeType::bf16) || weights.grouped() ||
      weights.layout != PanelLayout::n_major || product.a_scale.present() || product.weight_scale.present() ||
      product.row_ends.present() || product.a_index.present() || product.activation)
    return "the router is no dense product of plain weights";
  return {};
}

/// Without parts_first, which the caller sets.
inline router_args kernel_args(const grouped_gemm::Args& product) {
  const PackedWeights& weights = product.weights;
  return {.x_first = first_element(product.a),
          .weights_first = first_element(weights.view()),
          .bias_first = first_element(product.bias),
          .parts_first = 0,
          .x_stride = product.a.stride[0],
          .bias_stride = grouped_gemm::column_stride(product.bias),
          .tokens = int_of(product.a.shape[0]),
          .n = int_of(weights.n),
          .k = int_of(weights.k),
          .slice_k = int_of(slice_k(weights.n, weights.k)),
          .bias_dtype = any_dtype(product.bias.dtype),
          .pad = 0};
}

}  // namespace moecl::router
