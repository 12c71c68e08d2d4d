#pragma once
#include <moecl/dtype.hpp>

#include <cstdint>
#include <optional>
#include <vector>

namespace moecl {

/// The part of a [rows, columns] matrix that shares a scale. Rows are tokens (activations) or output channels
/// (weights); columns are what a product sums over.
struct ScaleGroup {
  static constexpr std::int64_t whole = -1;  ///< the full extent
  std::int64_t rows = whole, columns = whole;

  static constexpr ScaleGroup per_tensor() { return {whole, whole}; }
  static constexpr ScaleGroup per_token() { return {1, whole}; }
  static constexpr ScaleGroup per_channel() { return {1, whole}; }
  /// Runs of `columns` within a row.
  static constexpr ScaleGroup per_group(std::int64_t columns) { return {1, columns}; }
  static constexpr ScaleGroup per_block(std::int64_t rows, std::int64_t columns) { return {rows, columns}; }
};

/// How one operand of a product is quantized.
struct OperandQuant {
  std::optional<DType> dtype;  ///< element type of the codes; none: not quantized
  ScaleGroup group;

  bool quantized() const noexcept { return dtype.has_value(); }
};

/// How the experts' products are quantized, as plain data. Both products of an expert share it.
///
/// Source: the quantization config of vLLM's fused MoE; names as there
struct QuantScheme {
  OperandQuant activations, weights;

  static QuantScheme none() { return {}; }
  /// int8 weights with a scale for each output channel; int8 activations, scaled token by token when they come.
  static QuantScheme int8_w8a8() {
    return {{DType::i8, ScaleGroup::per_token()}, {DType::i8, ScaleGroup::per_channel()}};
  }
};

/// Shape of the scales of a [rows, columns] operand; empty when it is not quantized.
/// Range: a last group may be shorter, so extents round up
std::vector<std::int64_t> scale_shape(const OperandQuant& operand, std::int64_t rows, std::int64_t columns);
/// The same for a matrix of each expert: activations in the batched layout, and weights.
std::vector<std::int64_t> batched_scale_shape(const OperandQuant& operand, std::int64_t experts, std::int64_t rows,
                                              std::int64_t columns);

}  // namespace moecl
