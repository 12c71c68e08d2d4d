#include <moecl/quant_scheme.hpp>

#include <fmt/format.h>

#include <cmath>

#include "runtime/quotient.hpp"

namespace moecl {
namespace {

std::int64_t groups(std::int64_t extent, std::int64_t group) {
  return group == ScaleGroup::whole ? 1 : quotient_up(extent, group);
}

bool has_limits(const OperandQuant& operand) { return !std::isinf(operand.most_amax) || operand.least_scale != 0; }

/// Checks the rules for scales that are computed from the numbers.
std::string reject_dynamic(const OperandQuant& operand) {
  const bool rounded = operand.rounding != ScaleRounding::standard;
  if (!(operand.most_amax > 0) || !(operand.least_scale >= 0) || std::isinf(operand.least_scale))
    return fmt::format("amax at most {} and scales of at least {}", operand.most_amax, operand.least_scale);
  if ((rounded || has_limits(operand)) &&
      (operand.static_scale || operand.zero_points || operand.scale == ScaleFormat::e4m3))
    return fmt::format("scales that are rounded or have limits come from the largest magnitude alone, got {}",
                       describe(operand));
  if (has_limits(operand) && operand.scale != ScaleFormat::real)
    return fmt::format("limits are of real scales, got {}", describe(operand));
  const bool real_up = operand.rounding == ScaleRounding::ratio_up && operand.group.rows != ScaleGroup::whole;
  if (rounded && operand.scale == ScaleFormat::real && !real_up)
    return fmt::format("real scales of single rows or blocks are rounded, by their ratio, got {}", describe(operand));
  return {};
}

const char* describe(ScaleRounding rounding) {
  switch (rounding) {
    case ScaleRounding::standard:
      return "";
    case ScaleRounding::ratio_up:
      return " rounded up";
    case ScaleRounding::amax_up:
      return " of amax rounded up";
    case ScaleRounding::amax_even:
      return " of amax rounded up from 1.75";
    case ScaleRounding::amax_nearest:
      return " of amax rounded to nearest";
  }
  return "?";
}

/// Checks that apply to weights and activations alike.
std::string reject(const OperandQuant& operand) {
  const CodeType type = *operand.type;
  const ScaleGroup group = operand.group;
  for (const std::int64_t extent : {group.rows, group.columns})
    if (extent < 1 && extent != ScaleGroup::whole)
      return fmt::format("a group of {} x {}: extents are at least 1, or -1 for the whole", group.rows, group.columns);
  if (bits(type) > 8) return fmt::format("{} is not a quantized type", name(type));
  if (operand.zero_points && !is_integer(type)) return fmt::format("{} codes have no zero points", name(type));
  if (operand.scale == ScaleFormat::e8m0 && (is_integer(type) || !(group == ScaleGroup::per_group(32))))
    return fmt::format("e8m0 scales need floating-point codes in groups of 32, got {}", describe(operand));
  if (operand.scale == ScaleFormat::e4m3 && (type != CodeType::f4_e2m1 || !(group == ScaleGroup::per_group(16))))
    return fmt::format("e4m3 scales need f4_e2m1 codes in groups of 16, got {}", describe(operand));
  if (operand.scale == ScaleFormat::real && !is_integer(type) && bits(type) < 8)
    return fmt::format("{} codes need e8m0 or e4m3 scales", name(type));
  return reject_dynamic(operand);
}

std::string reject_activations(const OperandQuant& activations, const OperandQuant& weights) {
  const CodeType a = *activations.type, w = *weights.type;
  const ScaleGroup group = activations.group;
  if (group.rows != 1 && group.rows != ScaleGroup::whole)
    return fmt::format("scales of activations for {} rows together", group.rows);
  if (group.rows == ScaleGroup::whole && group.columns != ScaleGroup::whole)
    return "scales of activations for each column: a product could not apply them";
  if (activations.static_scale && !(group == ScaleGroup::per_tensor()) && activations.scale != ScaleFormat::e4m3)
    return fmt::format("static scales of activations are per tensor, got {}", describe(activations));
  if (activations.zero_points && (activations.static_scale || group.rows == ScaleGroup::whole))
    return fmt::format("zero points of activations come with each token's scale, got {}", describe(activations));
  // int4 weights meet fp8 activations as numbers of their own. Source: vLLM's W4A8 with fp8
  if (is_integer(a) != is_integer(w) && !(is_integer(w) && bits(w) == 4 && bits(a) == 8))
    return fmt::format("{} activations with {} weights: no product mixes integers and floating-point codes", name(a),
                       name(w));
  if (bits(a) < bits(w)) return fmt::format("{} activations are narrower than {} weights", name(a), name(w));
  if (weights.group.rows > 1 && weights.group.columns != group.columns)
    return fmt::format("weights in blocks of {} x {} need activations in groups of {}, got {}", weights.group.rows,
                       weights.group.columns, weights.group.columns, describe(activations));
  return {};
}

}  // namespace

std::string describe(const OperandQuant& operand) {
  if (!operand.quantized()) return "plain";
  const auto [rows, columns] = operand.group;
  std::string text = name(*operand.type);
  if (rows == ScaleGroup::whole && columns == ScaleGroup::whole)
    text += " per tensor";
  else if (rows == 1 && columns == ScaleGroup::whole)
    text += " per row";
  else if (rows == 1)
    text += fmt::format(" in groups of {}", columns);
  else
    text += fmt::format(" in blocks of {} x {}", rows, columns);
  const bool real = operand.scale == ScaleFormat::real;
  if (operand.scale == ScaleFormat::e8m0) text += " with e8m0 scales";
  if (operand.scale == ScaleFormat::e4m3) text += " with e4m3 scales";
  if (real && operand.rounding != ScaleRounding::standard) text += " with power-of-two scales";
  text += describe(operand.rounding);
  if (!std::isinf(operand.most_amax)) text += fmt::format(", amax at most {}", operand.most_amax);
  if (operand.least_scale != 0) text += fmt::format(", scales of at least {:.3g}", operand.least_scale);
  if (operand.zero_points) text += " with zero points";
  if (operand.static_scale) text += ", static";
  return text;
}

std::vector<NamedScheme> named_schemes() {
  return {
      {"int8_w8a8", QuantScheme::int8_w8a8()},
      {"int8_w8a8_asymmetric", QuantScheme::int8_w8a8_asymmetric()},
      {"int8_w8a16", QuantScheme::int8_w8a16()},
      {"int4_w4a16", QuantScheme::int4_w4a16()},
      {"int4_w4a8", QuantScheme::int4_w4a8()},
      {"fp8_w8a8", QuantScheme::fp8_w8a8()},
      {"fp8_w8a8_block", QuantScheme::fp8_w8a8_block()},
      {"fp8_w8a16", QuantScheme::fp8_w8a16()},
      {"mxfp4_w4a16", QuantScheme::mxfp4_w4a16()},
      {"mxfp4_w4a8", QuantScheme::mxfp4_w4a8()},
      {"mxfp4_w4a4", QuantScheme::mxfp4_w4a4()},
      {"mxfp6_e2m3_w6a16", QuantScheme::mxfp6_e2m3_w6a16()},
      {"mxfp6_e3m2_w6a16", QuantScheme::mxfp6_e3m2_w6a16()},
      {"mxfp8_w8a16", QuantScheme::mxfp8_w8a16()},
      {"mxfp8_w8a8", QuantScheme::mxfp8_w8a8()},
      {"nvfp4_w4a16", QuantScheme::nvfp4_w4a16()},
      {"nvfp4_w4a4", QuantScheme::nvfp4_w4a4()},
  };
}

std::optional<QuantScheme> scheme_named(std::string_view name) {
  for (const NamedScheme& row : named_schemes())
    if (name == row.name) return row.scheme;
  return std::nullopt;
}

std::string describe(const QuantScheme& scheme) {
  return fmt::format("weights {}, activations {}", describe(scheme.weights), describe(scheme.activations));
}

std::string reject(const QuantScheme& scheme) {
  if (!scheme.quantized()) return {};
  if (!scheme.weights.quantized()) return "quantized activations need quantized weights";
  if (std::string text = reject(scheme.weights); !text.empty()) return "weights: " + text;
  if (scheme.weights.static_scale) return "weights: a static scale is one of activations";
  if (!scheme.activations.quantized()) return {};
  if (std::string text = reject(scheme.activations); !text.empty()) return "activations: " + text;
  return reject_activations(scheme.activations, scheme.weights);
}

std::vector<std::int64_t> scale_shape(const OperandQuant& operand, std::int64_t rows, std::int64_t columns) {
  if (!operand.quantized()) return {};
  return {groups(rows, operand.group.rows), groups(columns, operand.group.columns)};
}

std::vector<std::int64_t> batched_scale_shape(const OperandQuant& operand, std::int64_t experts, std::int64_t rows,
                                              std::int64_t columns) {
  std::vector<std::int64_t> shape = scale_shape(operand, rows, columns);
  if (!shape.empty()) shape.insert(shape.begin(), experts);
  return shape;
}

}  // namespace moecl
