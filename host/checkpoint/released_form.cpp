#include "host/checkpoint/released_form.hpp"

#include <moecl/quantization_config.hpp>

#include <cstring>

#include "host/checkpoint/safetensors_format.hpp"
#include "runtime/check.hpp"

namespace moecl {
namespace {

using Part = ReleasedTensor::Part;

bool is_block(const OperandQuant& weights) { return weights.group.rows > 1; }
bool is_quark(const OperandQuant& weights) { return weights.scale == ScaleFormat::e8m0; }

ReleasedTensor released(std::string name, DType dtype, std::vector<std::int64_t> shape, Part part) {
  const auto bytes = tensor_bytes(dtype, shape);
  require(bytes.has_value(), "{}: size overflows", name);
  return {{std::move(name), dtype, std::move(shape), nullptr, *bytes}, part};
}

nlohmann::json compressed_args(const OperandQuant& operand, bool activations) {
  const ScaleGroup group = operand.group;
  nlohmann::json args = {{"num_bits", bits(*operand.type)},
                         {"type", is_integer(*operand.type) ? "int" : "float"},
                         {"symmetric", !operand.zero_points},
                         {"dynamic", activations},
                         {"group_size", nullptr}};
  if (group.columns != ScaleGroup::whole) args["group_size"] = group.columns;
  args["strategy"] = operand.scale == ScaleFormat::e4m3   ? "tensor_group"
                     : group.columns != ScaleGroup::whole ? "group"
                     : group == ScaleGroup::per_tensor()  ? "tensor"
                     : activations                        ? "token"
                                                          : "channel";
  return args;
}

nlohmann::json quark_spec(const OperandQuant& operand, bool activations) {
  std::string type = name(*operand.type);
  type.insert(1, "p");  // f8_e4m3 becomes fp8_e4m3
  if (operand.type == CodeType::f4_e2m1) type = "fp4";
  return {{"dtype", type},
          {"qscheme", "per_group"},
          {"group_size", operand.group.columns},
          {"scale_format", "e8m0"},
          {"scale_calculation_mode", "floor"},
          {"is_dynamic", activations}};
}

const char* compressed_format(const OperandQuant& weights) {
  if (weights.scale == ScaleFormat::e4m3) return "nvfp4-pack-quantized";
  if (!is_integer(*weights.type)) return "float-quantized";
  return bits(*weights.type) == 4 ? "pack-quantized" : "int-quantized";
}

}  // namespace

bool is_released(const QuantScheme& scheme, bool stacked, bool shared, bool flat) {
  const bool mxfp4 = scheme.weights.type == CodeType::f4_e2m1 && scheme.weights.scale == ScaleFormat::e8m0;
  return !stacked || (!flat && mxfp4 && !scheme.activations.quantized() && !shared);
}

std::vector<ReleasedTensor> released_tensors(const std::string& name, std::int64_t rows, std::int64_t columns,
                                             const OperandQuant& weights, std::int64_t stacked) {
  const std::vector<std::int64_t> scales = scale_shape(weights, rows, columns);
  if (stacked > 0) {
    require(columns % 32 == 0, "{}: {} columns are not blocks of 32", name, columns);
    return {released(module_of(name) + "_blocks", DType::u8, {stacked, rows / stacked, columns / 32, 16}, Part::codes),
            released(module_of(name) + "_scales", DType::u8, {stacked, rows / stacked, columns / 32}, Part::scale)};
  }
  const std::string module = module_of(name) + ".";
  const DType scale_type = weights.scale == ScaleFormat::real   ? DType::f32
                           : weights.scale == ScaleFormat::e8m0 ? DType::u8
                                                                : DType::f8_e4m3;
  std::vector<ReleasedTensor> result;
  result.push_back(
      released(module + (is_block(weights) ? "weight_scale_inv" : "weight_scale"), scale_type, scales, Part::scale));
  const CodeType type = *weights.type;
  if (type == CodeType::u4) {
    require(columns % 8 == 0, "{}: {} columns do not fill words of 8 codes", name, columns);
    result.push_back(released(module + "weight_packed", DType::i32, {rows, columns / 8}, Part::codes));
    result.push_back(released(module + "weight_shape", DType::i64, {2}, Part::shape));
  } else if (type == CodeType::f4_e2m1) {
    const char* const named = is_quark(weights) ? "weight" : "weight_packed";
    result.push_back(released(module + named, DType::u8, {rows, columns / 2}, Part::codes));
  } else {
    const DType stored = type == CodeType::i8        ? DType::i8
                         : type == CodeType::f8_e4m3 ? DType::f8_e4m3
                         : type == CodeType::f8_e5m2 ? DType::f8_e5m2
                                                     : DType::u8;
    result.push_back(released(module + "weight", stored, {rows, columns * bits(type) / 8}, Part::codes));
  }
  if (weights.scale == ScaleFormat::e4m3)
    result.push_back(released(module + "weight_global_scale", DType::f32, {1}, Part::global_scale));
  return result;
}

const void* released_bytes(Part part, const QuantizedWeights& weights, std::vector<std::byte>& number) {
  const auto keep = [&](const auto& value) {
    number.resize(sizeof(value));
    std::memcpy(number.data(), &value, sizeof(value));
    return static_cast<const void*>(number.data());
  };
  switch (part) {
    case Part::codes:
      return weights.codes.data();
    case Part::scale:
      return weights.scale.data();
    case Part::global_scale:
      return keep(1 / weights.matrix.global_scale);
    case Part::shape:
      break;
  }
  const std::int64_t shape[2] = {weights.matrix.rows(), weights.matrix.columns()};
  return keep(shape);
}

nlohmann::json released_config(const QuantScheme& scheme, bool stacked) {
  const OperandQuant& weights = scheme.weights;
  const nlohmann::json ignored = {"lm_head", "re:.*self_attn.*", "re:.*gate$", "re:.*router$"};
  if (stacked) return {{"quant_method", "mxfp4"}, {"modules_to_not_convert", ignored}};
  if (is_block(weights))
    return {{"quant_method", "fp8"},
            {"fmt", "e4m3"},
            {"activation_scheme", "dynamic"},
            {"weight_block_size", {weights.group.rows, weights.group.columns}},
            {"modules_to_not_convert", ignored}};
  const bool activations = scheme.activations.quantized();
  if (is_quark(weights)) {
    nlohmann::json global = {{"weight", quark_spec(weights, false)}, {"input_tensors", nullptr}};
    if (activations) global["input_tensors"] = quark_spec(scheme.activations, true);
    return {{"quant_method", "quark"}, {"global_quant_config", global}, {"exclude", ignored}};
  }
  nlohmann::json group = {{"targets", {"Linear"}}, {"weights", compressed_args(weights, false)}};
  group["input_activations"] = activations ? compressed_args(scheme.activations, true) : nlohmann::json();
  return {{"quant_method", "compressed-tensors"},
          {"quantization_status", "compressed"},
          {"format", compressed_format(weights)},
          {"config_groups", {{"group_0", group}}},
          {"ignore", ignored}};
}

}  // namespace moecl
