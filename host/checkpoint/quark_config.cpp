#include <fmt/ranges.h>

#include <algorithm>

#include "host/checkpoint/json_file.hpp"
#include "host/checkpoint/quantization_fields.hpp"
#include "host/checkpoint/quantization_methods.hpp"
#include "runtime/check.hpp"

// Source: AMD Quark, quantization/config (QuantizationSpec, QuantizationConfig) and its export to Hugging Face

namespace moecl {
namespace {

struct QuarkType {
  const char* name;
  CodeType type;
};

constexpr QuarkType types[] = {
    {"int8", CodeType::i8},     {"fp8_e4m3", CodeType::f8_e4m3}, {"fp8_e5m2", CodeType::f8_e5m2},
    {"fp4", CodeType::f4_e2m1}, {"fp6_e2m3", CodeType::f6_e2m3}, {"fp6_e3m2", CodeType::f6_e3m2},
};

/// How an e8m0 scale is computed from a group's values. Source: Quark, observer.py; None is even
ScaleRounding parse_rounding(const ConfigFields& fields) {
  const std::string mode = fields.text({{"scale_calculation_mode"}, "even"});
  if (mode == "even") return ScaleRounding::amax_nearest;
  if (mode == "floor") return ScaleRounding::standard;
  if (mode == "ceil") return ScaleRounding::amax_up;
  fail(ErrorCode::unsupported, "{}: scale_calculation_mode \"{}\" is not one of even, floor, ceil", fields.origin(),
       mode);
}

/// A "weight" or "input_tensors" object.
OperandQuant parse_spec(const nlohmann::json& spec, const std::string& origin, QuantizationConfig& to) {
  check_members(to, spec, ConfigObject::quark_spec, origin);
  const ConfigFields fields(spec, origin);
  const std::string dtype = fields.text({{"dtype"}});
  OperandQuant operand;
  std::vector<const char*> known;
  for (const QuarkType& row : types) {
    if (dtype == row.name) operand.type = row.type;
    known.push_back(row.name);
  }
  if (!operand.type)
    fail(ErrorCode::unsupported, "{}: dtype \"{}\" is not one of {}", origin, dtype, fmt::join(known, ", "));
  const std::string scheme = fields.text({{"qscheme"}});
  if (scheme == "per_tensor")
    operand.group = ScaleGroup::per_tensor();
  else if (scheme == "per_channel" || scheme == "per_token")
    operand.group = ScaleGroup::per_channel();
  else if (scheme == "per_group")
    operand.group = ScaleGroup::per_group(group_extent(spec, "group_size", fields));
  else
    fail(ErrorCode::unsupported, "{}: qscheme \"{}\" is not one of per_tensor, per_channel, per_token, per_group",
         origin, scheme);
  const std::string scale = fields.text({{"scale_format"}, "float32"});
  if (scale != "e8m0" && scale != "float32" && scale != "float")
    fail(ErrorCode::unsupported, "{}: scale_format \"{}\" is not one of e8m0, float32", origin, scale);
  const ScaleRounding rounding = parse_rounding(fields);
  if (scale == "e8m0") operand.scale = ScaleFormat::e8m0, operand.rounding = rounding;
  if (const std::string round = fields.text({{"round_method"}, "half_even"}); round != "half_even")
    fail(ErrorCode::unsupported, "{}: round_method \"{}\" is not half_even", origin, round);
  const bool symmetric = fields.boolean({{"symmetric"}, true});
  operand.zero_points = is_integer(*operand.type) && !symmetric;
  operand.static_scale = !fields.boolean({{"is_dynamic"}, false});
  return operand;
}

QuantizedModules parse_layer(const nlohmann::json& layer, const std::string& origin, QuantizationConfig& to) {
  check_members(to, layer, ConfigObject::quark_layer, origin);
  const ConfigFields fields(layer, origin);
  const nlohmann::json* weight = object_member(layer, "weight", fields);
  if (weight == nullptr) fail(ErrorCode::unsupported, "{}: no \"weight\"", origin);
  QuantizedModules modules;
  modules.scheme.weights = parse_spec(*weight, origin + ".weight", to);
  modules.scheme.weights.static_scale = false;
  modules.scheme.weights.rounding = ScaleRounding::standard;  // the checkpoint has their scales
  if (const nlohmann::json* inputs = object_member(layer, "input_tensors", fields))
    modules.scheme.activations = parse_spec(*inputs, origin + ".input_tensors", to);
  return modules;
}

/// Accepts algorithms that only chose codes and scales. Others may still act on each product's input, as rotations do.
void check_algorithms(const nlohmann::json& config, const ConfigFields& fields) {
  const nlohmann::json* algorithms = find_member(config, "algo_config");
  if (algorithms == nullptr) return;
  if (!algorithms->is_array())
    fail(ErrorCode::invalid_data, "{}: \"algo_config\" is {}, not a list", fields.origin(), algorithms->dump());
  for (const nlohmann::json& algorithm : *algorithms) {
    const std::string name = ConfigFields(algorithm, fields.origin() + ": algo_config").text({{"name"}});
    const auto known = {"awq", "autosmoothquant", "gptq", "gptaq", "qronos", "smooth"};
    if (std::find(known.begin(), known.end(), name) == known.end())
      fail(ErrorCode::unsupported, "{}: algo_config \"{}\" is not one of {}", fields.origin(), name,
           fmt::join(known, ", "));
  }
}

}  // namespace

void parse_quark(const nlohmann::json& config, const ConfigFields& fields, QuantizationConfig& to) {
  check_members(to, config, ConfigObject::quark, fields.origin());
  check_algorithms(config, fields);
  if (const nlohmann::json* layers = object_member(config, "layer_quant_config", fields)) {
    for (const auto& [name, layer] : layers->items()) {
      const std::string origin = fmt::format("{}: layer_quant_config.{}", fields.origin(), name);
      if (!layer.is_object()) fail(ErrorCode::invalid_data, "{} is {}, not an object", origin, layer.dump());
      QuantizedModules modules = parse_layer(layer, origin, to);
      modules.targets.emplace_back(name, fields.origin());
      add_group(to, std::move(modules), ConfigFields(layer, origin));
    }
  }
  const nlohmann::json* global = object_member(config, "global_quant_config", fields);
  if (global == nullptr) fail(ErrorCode::invalid_data, "{}: no \"global_quant_config\"", fields.origin());
  const std::string origin = fields.origin() + ": global_quant_config";
  add_group(to, parse_layer(*global, origin, to), ConfigFields(*global, origin));
  ignore_listed(to, config, "exclude", fields);
}

}  // namespace moecl
