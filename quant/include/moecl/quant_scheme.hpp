#pragma once
#include <moecl/code_type.hpp>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
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
  /// Blocks of the matrix.
  static constexpr ScaleGroup per_block(std::int64_t rows, std::int64_t columns) { return {rows, columns}; }

  bool operator==(const ScaleGroup& other) const noexcept { return rows == other.rows && columns == other.columns; }
};

/// What the scales of an operand are.
enum class ScaleFormat : std::uint8_t {
  real,  ///< f32, f16 or bf16
  e8m0,  ///< powers of two, a byte each. Source: OCP Microscaling Formats 1.0
  e4m3,  ///< fp8, times one real number for the whole matrix. Source: NVFP4
};

/// Which power of two a scale becomes that comes from its group's numbers: of amax, the largest magnitude, divided by
/// that of the format's largest number, or of amax / that number itself.
enum class ScaleRounding : std::uint8_t {
  standard,      ///< e8m0: amax down. real: not rounded. Source: OCP Microscaling Formats 1.0, section 6.3
  ratio_up,      ///< amax / largest number, up. Source: DeepGEMM, ue8m0; ModelOpt, MXFP8
  amax_up,       ///< amax, up. Source: Quark, ceil
  amax_even,     ///< amax, up from 1.75 times a power of two on. Source: compressed-tensors, mxfp4 and mxfp8
  amax_nearest,  ///< amax, up where rounding to the format's mantissa leads there. Source: Quark, even
};

/// How one operand of a product is quantized.
struct OperandQuant {
  std::optional<CodeType> type;  ///< of the codes; none: not quantized
  ScaleGroup group;
  ScaleFormat scale = ScaleFormat::real;
  bool zero_points = false;   ///< integer codes count from a zero point of their group
  bool static_scale = false;  ///< activations: the checkpoint has the scale; else it comes from the numbers themselves
  ScaleRounding rounding = ScaleRounding::standard;  ///< of scales that come from the numbers; what stored ones went by
  /// Of real scales that come from the numbers: amax counts as at most this (range: above 0), and the scale is at least
  /// that (range: finite, not negative).
  float most_amax = std::numeric_limits<float>::infinity(), least_scale = 0;

  bool quantized() const noexcept { return type.has_value(); }
};

/// How the experts' products are quantized, as plain data. Both products of an expert share it.
///
/// Source: the quantization config of vLLM's fused MoE; names as there
struct QuantScheme {
  OperandQuant activations, weights;

  bool quantized() const noexcept { return weights.quantized() || activations.quantized(); }

  static QuantScheme none() { return {}; }
  /// int8 weights with a scale for each output channel; int8 activations, scaled token by token when they come.
  static QuantScheme int8_w8a8() {
    return {{CodeType::i8, ScaleGroup::per_token()}, {CodeType::i8, ScaleGroup::per_channel()}};
  }
  /// The same with a zero point for each token.
  static QuantScheme int8_w8a8_asymmetric() {
    QuantScheme scheme = int8_w8a8();
    scheme.activations.zero_points = true;
    return scheme;
  }
  static QuantScheme int8_w8a16() { return {{}, {CodeType::i8, ScaleGroup::per_channel()}}; }
  /// int4 weights in groups along K.
  static QuantScheme int4_w4a16(std::int64_t group = 128, bool zero_points = false) {
    return {{}, {CodeType::u4, ScaleGroup::per_group(group), ScaleFormat::real, zero_points}};
  }
  /// The same weights with int8 activations, scaled token by token.
  static QuantScheme int4_w4a8(std::int64_t group = 128) {
    return {{CodeType::i8, ScaleGroup::per_token()}, int4_w4a16(group).weights};
  }
  static QuantScheme fp8_w8a16() { return {{}, {CodeType::f8_e4m3, ScaleGroup::per_channel()}}; }
  static QuantScheme fp8_w8a8() {
    return {{CodeType::f8_e4m3, ScaleGroup::per_token()}, {CodeType::f8_e4m3, ScaleGroup::per_channel()}};
  }
  /// Blocks of weights, and runs of as many columns of activations. Source: DeepSeek-V3, arXiv:2412.19437, section 3.3
  static QuantScheme fp8_w8a8_block(std::int64_t rows = 128, std::int64_t columns = 128) {
    return {{CodeType::f8_e4m3, ScaleGroup::per_group(columns)},
            {CodeType::f8_e4m3, ScaleGroup::per_block(rows, columns)}};
  }
  /// OCP MX: blocks of 32 along what is summed over. Source: OCP Microscaling Formats 1.0
  static OperandQuant mx(CodeType type) { return {type, ScaleGroup::per_group(32), ScaleFormat::e8m0}; }
  static QuantScheme mxfp4_w4a16() { return {{}, mx(CodeType::f4_e2m1)}; }
  static QuantScheme mxfp4_w4a4() { return {mx(CodeType::f4_e2m1), mx(CodeType::f4_e2m1)}; }
  static QuantScheme mxfp4_w4a8() { return {mx(CodeType::f8_e4m3), mx(CodeType::f4_e2m1)}; }
  static QuantScheme mxfp6_e2m3_w6a16() { return {{}, mx(CodeType::f6_e2m3)}; }
  static QuantScheme mxfp6_e3m2_w6a16() { return {{}, mx(CodeType::f6_e3m2)}; }
  static QuantScheme mxfp8_w8a16() { return {{}, mx(CodeType::f8_e4m3)}; }
  static QuantScheme mxfp8_w8a8() { return {mx(CodeType::f8_e4m3), mx(CodeType::f8_e4m3)}; }
  static OperandQuant nvfp4() { return {CodeType::f4_e2m1, ScaleGroup::per_group(16), ScaleFormat::e4m3}; }
  static QuantScheme nvfp4_w4a16() { return {{}, nvfp4()}; }
  static QuantScheme nvfp4_w4a4() { return {nvfp4(), nvfp4()}; }
};

/// The schemes above by name, which is that of their factory.
struct NamedScheme {
  const char* name;
  QuantScheme scheme;
};
/// All of them.
std::vector<NamedScheme> named_schemes();
/// nullopt when there is none of that name.
std::optional<QuantScheme> scheme_named(std::string_view name);

/// "f8_e4m3 in groups of 128"
std::string describe(const OperandQuant& operand);
/// "weights f8_e4m3 in blocks of 128 x 128, activations f8_e4m3 in groups of 128"
std::string describe(const QuantScheme& scheme);
/// Why no product can be quantized like that; empty when one can.
std::string reject(const QuantScheme& scheme);

/// Shape of the scales of a [rows, columns] operand; empty when it is not quantized.
/// Range: a last group may be shorter, so extents round up
std::vector<std::int64_t> scale_shape(const OperandQuant& operand, std::int64_t rows, std::int64_t columns);
/// The same for a matrix of each expert: activations in the batched layout, and weights.
std::vector<std::int64_t> batched_scale_shape(const OperandQuant& operand, std::int64_t experts, std::int64_t rows,
                                              std::int64_t columns);

}  // namespace moecl
