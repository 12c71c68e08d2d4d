#include <fmt/ranges.h>

#include "host/checkpoint/json_file.hpp"
#include "host/checkpoint/quantization_fields.hpp"
#include "host/checkpoint/quantization_methods.hpp"
#include "runtime/check.hpp"

// Sources: compressed-tensors, quant_args.py, quant_config.py and config/base.py (CompressionFormat); its README.

namespace moecl {
namespace {

/// A "weights" or "input_activations" object.
struct QuantArgs {
  std::string strategy;
  std::int64_t bits;
  bool is_float;
  OperandQuant operand;
};

QuantArgs parse_args(const nlohmann::json& args, const std::string& origin, QuantizationConfig& to) {
  check_members(to, args, ConfigObject::compressed_tensors_args, origin);
  const ConfigFields fields(args, origin);
  QuantArgs result;
  result.bits = fields.integer({{"num_bits"}, 8});
  const std::string type = fields.text({{"type"}, "int"});
  if (type != "int" && type != "float")
    fail(ErrorCode::unsupported, "{}: type \"{}\" is not one of int, float", origin, type);
  result.is_float = type == "float";
  const std::int64_t group = group_extent(args, "group_size", fields);
  result.strategy = fields.text({{"strategy"}, group == ScaleGroup::whole ? "tensor" : "group"});
  OperandQuant& operand = result.operand;
  operand.zero_points = !fields.boolean({{"symmetric"}, true});
  // "dynamic" is true, false or "local". Local: scales of groups are computed from the values, and one scale of the
  // whole tensor is in the checkpoint.
  const nlohmann::json* dynamic = find_member(args, "dynamic");
  const auto* word = dynamic != nullptr ? dynamic->get_ptr<const std::string*>() : nullptr;
  const bool local = word != nullptr && *word == "local";
  operand.static_scale = local || !fields.boolean({{"dynamic"}, false});
  if (result.strategy == "tensor") {
    operand.group = ScaleGroup::per_tensor();
  } else if (result.strategy == "channel" || result.strategy == "token") {
    operand.group = ScaleGroup::per_channel();
  } else if (result.strategy == "group" || result.strategy == "tensor_group") {
    operand.group = ScaleGroup::per_group(group);
  } else if (result.strategy == "block") {
    const std::vector<std::int64_t> block = fields.integers("block_structure");
    if (block.size() != 2 || block[0] < 1 || block[1] < 1)
      fail(ErrorCode::invalid_data, "{}: block_structure [{}], not two numbers above 0", origin,
           fmt::join(block, ", "));
    operand.group = ScaleGroup::per_block(block[0], block[1]);
  } else {
    fail(ErrorCode::unsupported, "{}: strategy \"{}\" is not one of tensor, channel, token, group, tensor_group, block",
         origin, result.strategy);
  }
  if (result.is_float && result.bits == 4)
    operand.type = CodeType::f4_e2m1;
  else if (result.is_float && result.bits == 8)
    operand.type = CodeType::f8_e4m3;
  else if (!result.is_float && (result.bits == 4 || result.bits == 8))
    operand.type = CodeType::i8;
  else
    fail(ErrorCode::unsupported, "{}: {} of {} bits; known are 4 and 8", origin, type, result.bits);
  const std::string scale = fields.text({{"scale_dtype"}, ""});
  if (result.strategy == "tensor_group")
    operand.scale = ScaleFormat::e4m3;
  else if (result.is_float &&
           (scale == "torch.uint8" || scale == "torch.float8_e8m0fnu" || (result.bits == 4 && group == 32)))
    operand.scale = ScaleFormat::e8m0;
  return result;
}

/// How a format stores codes, and which codes it can hold.
struct Format {
  const char* name;
  StoredForm form;
  bool (*takes)(const QuantArgs&);
};

constexpr Format formats[] = {
    {"pack-quantized", StoredForm::words, [](const QuantArgs& args) { return !args.is_float; }},
    {"int-quantized", StoredForm::rows, [](const QuantArgs& args) { return !args.is_float; }},
    {"naive-quantized", StoredForm::rows, [](const QuantArgs& args) { return args.bits == 8 || !args.is_float; }},
    {"float-quantized", StoredForm::rows, [](const QuantArgs& args) { return args.is_float && args.bits == 8; }},
    {"mxfp8-quantized", StoredForm::rows, [](const QuantArgs& args) { return args.is_float && args.bits == 8; }},
    {"nvfp4-pack-quantized", StoredForm::rows,
     [](const QuantArgs& args) { return args.operand.scale == ScaleFormat::e4m3; }},
    {"mxfp4-pack-quantized", StoredForm::rows,
     [](const QuantArgs& args) { return args.operand.type == CodeType::f4_e2m1; }},
};

const Format& find_format(const std::string& name, const ConfigFields& fields) {
  std::vector<const char*> known;
  for (const Format& format : formats) {
    if (name == format.name) return format;
    known.push_back(format.name);
  }
  fail(ErrorCode::unsupported, "{}: format \"{}\" is not one of {}", fields.origin(), name, fmt::join(known, ", "));
}

QuantizedModules parse_group(const nlohmann::json& group, const std::string& default_format, const ConfigFields& fields,
                             QuantizationConfig& to) {
  check_members(to, group, ConfigObject::compressed_tensors_group, fields.origin());
  const nlohmann::json* weights = object_member(group, "weights", fields);
  if (weights == nullptr)
    fail(ErrorCode::unsupported, "{}: no \"weights\"; quantized activations need quantized weights", fields.origin());
  const std::string name = fields.text({{"format"}, default_format.c_str()});
  const Format& format = find_format(name, fields);
  QuantArgs args = parse_args(*weights, fields.origin() + ".weights", to);
  if (!format.takes(args))
    fail(ErrorCode::invalid_data, "{}: format {} does not hold {} codes of {} bits", fields.origin(), name,
         args.is_float ? "float" : "int", args.bits);
  if (format.form == StoredForm::words) args.operand.type = args.bits == 4 ? CodeType::u4 : CodeType::u8;
  if (name == "mxfp8-quantized" || name == "mxfp4-pack-quantized") args.operand.scale = ScaleFormat::e8m0;
  args.operand.static_scale = false;

  QuantizedModules modules;
  modules.form = format.form;
  modules.scheme.weights = args.operand;
  if (const nlohmann::json* activations = object_member(group, "input_activations", fields)) {
    const QuantArgs of_inputs = parse_args(*activations, fields.origin() + ".input_activations", to);
    if (!of_inputs.is_float && of_inputs.bits != 8)
      fail(ErrorCode::unsupported, "{}.input_activations: int of {} bits; known is 8", fields.origin(), of_inputs.bits);
    modules.scheme.activations = of_inputs.operand;
    // Source: compressed-tensors, generate_mx_scales
    if (of_inputs.operand.scale == ScaleFormat::e8m0) modules.scheme.activations.rounding = ScaleRounding::amax_even;
  }
  // "Linear" is the class of all expert matrices. Names of other classes match none of them.
  bool linear = false;
  for (std::string& target : text_list(group, "targets", fields)) {
    linear = linear || target == "Linear";
    if (target != "Linear") modules.targets.emplace_back(std::move(target), fields.origin());
  }
  if (linear) modules.targets.clear();
  return modules;
}

}  // namespace

void parse_compressed_tensors(const nlohmann::json& config, const ConfigFields& fields, QuantizationConfig& to) {
  check_members(to, config, ConfigObject::compressed_tensors, fields.origin());
  if (const auto* sparsity = object_member(config, "sparsity_config", fields); sparsity && !sparsity->empty()) {
    const std::string format = ConfigFields(*sparsity, fields.origin() + ": sparsity_config").text({{"format"}});
    if (format != "dense")
      fail(ErrorCode::unsupported, "{}: sparsity_config of format \"{}\" is not dense", fields.origin(), format);
  }
  const std::string format = fields.text({{"format"}, "dense"});
  const nlohmann::json* groups = object_member(config, "config_groups", fields);
  if (groups == nullptr) fail(ErrorCode::invalid_data, "{}: no \"config_groups\"", fields.origin());
  for (const auto& [name, group] : groups->items()) {
    const ConfigFields group_fields(group, fmt::format("{}: config_groups.{}", fields.origin(), name));
    if (!group.is_object())
      fail(ErrorCode::invalid_data, "{} is {}, not an object", group_fields.origin(), group.dump());
    add_group(to, parse_group(group, format, group_fields, to), group_fields);
  }
  ignore_listed(to, config, "ignore", fields);
}

}  // namespace moecl
