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
/// (weights); columns are the dimension that a product sums over.
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

/// How a scale that is computed from its group's numbers is rounded to a power of two. amax is the largest magnitude of
/// the group. Rules for amax round it to a power of two, and divide that by the power of two of the format's largest
/// number. The rule `ratio_up` rounds amax / that largest number.
enum class ScaleRounding : std::uint8_t {
  standard,      ///< e8m0: amax rounded down. real: not rounded. Source: OCP Microscaling Formats 1.0, section 6.3
  ratio_up,      ///< amax / largest number, rounded up. Source: DeepGEMM, ue8m0; ModelOpt, MXFP8
  amax_up,       ///< amax, rounded up. Source: Quark, ceil
  amax_even,     ///< amax, rounded up from 1.75 times a power of two on. Source: compressed-tensors, mxfp4 and mxfp8
  amax_nearest,  ///< amax, rounded up where rounding it to the format's mantissa carries. Source: Quark, even
};

/// How one operand of a product is quantized.
struct OperandQuant {
  std::optional<CodeType> type;  ///< type of the codes; none: not quantized
  ScaleGroup group;
  ScaleFormat scale = ScaleFormat::real;
  bool zero_points = false;   ///< integer codes are relative to a zero point of their group
  bool static_scale = false;  ///< activations: the checkpoint has the scale; else it is computed from the numbers
  ScaleRounding rounding = ScaleRounding::standard;  ///< of computed scales; for stored ones, how they were computed
  /// Limits of real scales that are computed from the numbers: `most_amax` bounds amax from above (range: above 0),
  /// `least_scale` bounds the scale from below (range: finite, not negative).
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
  /// int8 weights with a scale for each output channel; int8 activations with a dynamic scale for each token.
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
  /// The same weights with int8 activations, which have a scale for each token.
  static QuantScheme int4_w4a8(std::int64_t group = 128) {
    return {{CodeType::i8, ScaleGroup::per_token()}, int4_w4a16(group).weights};
  }
  static QuantScheme fp8_w8a16() { return {{}, {CodeType::f8_e4m3, ScaleGroup::per_channel()}}; }
  static QuantScheme fp8_w8a8() {
    return {{CodeType::f8_e4m3, ScaleGroup::per_token()}, {CodeType::f8_e4m3, ScaleGroup::per_channel()}};
  }
  /// Weights in blocks, activations in groups of as many columns. Source: DeepSeek-V3, arXiv:2412.19437, section 3.3
  static QuantScheme fp8_w8a8_block(std::int64_t rows = 128, std::int64_t columns = 128) {
    return {{CodeType::f8_e4m3, ScaleGroup::per_group(columns)},
            {CodeType::f8_e4m3, ScaleGroup::per_block(rows, columns)}};
  }
  /// OCP MX: blocks of 32 along the dimension that is summed over. Source: OCP Microscaling Formats 1.0
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

/// A scheme above, with the name of its factory.
struct NamedScheme {
  const char* name;
  QuantScheme scheme;
};
/// All schemes that have a name.
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
/// The same for one matrix per expert: weights, or activations in the batched layout.
std::vector<std::int64_t> batched_scale_shape(const OperandQuant& operand, std::int64_t experts, std::int64_t rows,
                                              std::int64_t columns);

}  // namespace moecl
