#include "host/checkpoint/quantization_methods.hpp"

#include <fmt/ranges.h>

#include <array>

#include "host/checkpoint/json_file.hpp"
#include "host/checkpoint/quantization_fields.hpp"
#include "runtime/check.hpp"

// Sources: the configuration classes of transformers 5 (utils/quantization_config.py) and of vLLM
// (model_executor/layers/quantization), and the released checkpoints' files.

namespace moecl {
namespace {

/// Unsigned codes. Without zero points, the middle of their range stands for 0.
CodeType unsigned_code(std::int64_t bits, const char* what, const ConfigFields& fields) {
  if (bits != 4 && bits != 8)
    fail(ErrorCode::unsupported, "{}: {} with {} bits; known are 4 and 8", fields.origin(), what, bits);
  return bits == 4 ? CodeType::u4 : CodeType::u8;
}

/// Reads GPTQ's fields: those at the top, or an override for some modules completed with those at the top.
QuantizedModules gptq_modules(const nlohmann::json& config, const ConfigFields& fields) {
  const std::int64_t bits = fields.integer({{"bits"}});
  const std::string format = fields.text({{"checkpoint_format", "format"}, "gptq"});
  if (format != "gptq" && format != "gptq_v2")
    fail(ErrorCode::unsupported, "{}: checkpoint_format \"{}\" is not one of gptq, gptq_v2", fields.origin(), format);
  if (const std::string word = fields.text({{"pack_dtype"}, "int32"}); word != "int32")
    fail(ErrorCode::unsupported, "{}: pack_dtype \"{}\" is not int32", fields.origin(), word);
  QuantizedModules modules;
  OperandQuant& weights = modules.scheme.weights;
  weights.type = unsigned_code(bits, "gptq", fields);
  weights.group = ScaleGroup::per_group(group_extent(config, "group_size", fields));
  weights.zero_points = true;
  modules.form = format == "gptq" ? StoredForm::gptq : StoredForm::gptq_v2;
  return modules;
}

/// `base`, with its members replaced by those that the override has.
JsonDocument overridden(const nlohmann::json& base, const nlohmann::json& changes, const ConfigFields& fields) {
  if (!changes.is_object())
    fail(ErrorCode::invalid_data, "{}: an override is {}, not an object", fields.origin(), changes.dump());
  JsonDocument merged(base);
  for (const char* name : {"bits", "group_size", "act_bits", "data_type"})
    if (const nlohmann::json* value = find_member(changes, name)) merged.root[name] = *value;
  return merged;
}

void add_gptq(const nlohmann::json& config, const ConfigFields& fields, QuantizationConfig& to) {
  // GPTQModel: "-:regex" leaves modules plain; "+:regex" or a bare regex overrides fields.
  if (const nlohmann::json* dynamic = object_member(config, "dynamic", fields)) {
    for (const auto& [key, changes] : dynamic->items()) {
      if (key.compare(0, 2, "-:") == 0) {
        to.ignored.emplace_back("re:" + key.substr(2), fields.origin());
        continue;
      }
      const JsonDocument merged = overridden(config, changes, fields);
      check_members(to, changes, ConfigObject::gptq_override, fmt::format("{}: dynamic.{}", fields.origin(), key));
      QuantizedModules modules = gptq_modules(merged, ConfigFields(merged, fields.origin()));
      modules.targets.emplace_back("re:" + (key.compare(0, 2, "+:") == 0 ? key.substr(2) : key), fields.origin());
      add_group(to, std::move(modules), fields);
    }
  }
  QuantizedModules modules = gptq_modules(config, fields);
  if (const nlohmann::json* lists = find_member(config, "modules_in_block_to_quantize"); lists && lists->is_array())
    for (const nlohmann::json& list : *lists) {
      JsonDocument wrapped;
      nlohmann::json& names = wrapped.root["modules"];
      if (list.is_array())
        names = std::move(JsonDocument(list).root);
      else
        names.push_back(list);
      for (std::string& name : text_list(wrapped, "modules", fields))
        modules.targets.emplace_back(std::move(name), fields.origin());
    }
  add_group(to, std::move(modules), fields);
}

void add_awq(const nlohmann::json& config, const ConfigFields& fields, QuantizationConfig& to) {
  if (const std::string version = fields.text({{"version"}, "gemm"}); version != "gemm" && version != "GEMM")
    fail(ErrorCode::unsupported, "{}: awq version \"{}\"; known is gemm", fields.origin(), version);
  const std::int64_t bits = fields.integer({{"bits", "w_bit"}});
  if (bits != 4) fail(ErrorCode::unsupported, "{}: awq with {} bits; known is 4", fields.origin(), bits);
  const bool old_name = find_member(config, "group_size") == nullptr;
  QuantizedModules modules;
  modules.scheme = QuantScheme::int4_w4a16(group_extent(config, old_name ? "q_group_size" : "group_size", fields),
                                           fields.boolean({{"zero_point"}, true}));
  modules.form = StoredForm::awq;
  add_group(to, std::move(modules), fields);
  ignore_listed(to, config, "modules_to_not_convert", fields);
}

/// Checks fields that may be at the top or in an override for some modules.
void check_auto_round(const ConfigFields& fields) {
  if (const std::string type = fields.text({{"data_type"}, "int"}); type != "int")
    fail(ErrorCode::unsupported, "{}: data_type \"{}\" is not int", fields.origin(), type);
  if (const std::int64_t bits = fields.integer({{"act_bits"}, 16}); bits < 16)
    fail(ErrorCode::unsupported, "{}: activations of {} bits; known are plain ones, of 16", fields.origin(), bits);
}

}  // namespace

void parse_gptq(const nlohmann::json& config, const ConfigFields& fields, QuantizationConfig& to) {
  check_members(to, config, ConfigObject::gptq, fields.origin());
  add_gptq(config, fields, to);
}

void parse_awq(const nlohmann::json& config, const ConfigFields& fields, QuantizationConfig& to) {
  check_members(to, config, ConfigObject::awq, fields.origin());
  add_awq(config, fields, to);
}

void parse_auto_round(const nlohmann::json& config, const ConfigFields& fields, QuantizationConfig& to) {
  check_members(to, config, ConfigObject::auto_round, fields.origin());
  check_auto_round(fields);
  const std::string packing = fields.text({{"packing_format"}, "auto_round:auto_gptq"});
  const bool awq = packing == "auto_round:auto_awq" || packing == "auto_round:awq";
  if (!awq && packing != "auto_round:auto_gptq" && packing != "auto_round:gptq")
    fail(ErrorCode::unsupported, "{}: packing_format \"{}\" is not one of auto_round:auto_gptq, auto_round:auto_awq",
         fields.origin(), packing);
  const auto add = awq ? add_awq : add_gptq;
  if (const nlohmann::json* extra = object_member(config, "extra_config", fields)) {
    for (const auto& [name, changes] : extra->items()) {
      const JsonDocument merged = overridden(config, changes, fields);
      const ConfigFields merged_fields(merged, fields.origin());
      check_members(to, changes, ConfigObject::auto_round_override,
                    fmt::format("{}: extra_config.{}", fields.origin(), name));
      if (merged_fields.integer({{"bits"}}) >= 16) {
        to.ignored.emplace_back(name, fields.origin());
        continue;
      }
      check_auto_round(merged_fields);
      QuantizationConfig one;
      add(merged, merged_fields, one);
      one.groups.back().targets = {ModulePattern(name, fields.origin())};
      to.groups.push_back(std::move(one.groups.back()));
    }
  }
  add(config, fields, to);
}

void parse_fp8(const nlohmann::json& config, const ConfigFields& fields, QuantizationConfig& to) {
  check_members(to, config, ConfigObject::fp8, fields.origin());
  const std::string format = fields.text({{"fmt"}, "e4m3"});
  if (format != "e4m3" && format != "float8_e4m3fn" && format != "e5m2")
    fail(ErrorCode::unsupported, "{}: fmt \"{}\" is not one of e4m3, float8_e4m3fn, e5m2", fields.origin(), format);
  const CodeType type = format == "e5m2" ? CodeType::f8_e5m2 : CodeType::f8_e4m3;
  const std::string scales = fields.text({{"scale_fmt"}, "float"});
  if (scales != "float" && scales != "ue8m0")
    fail(ErrorCode::unsupported, "{}: scale_fmt \"{}\" is not one of float, ue8m0", fields.origin(), scales);
  const std::string activations = fields.text({{"activation_scheme"}, "dynamic"});
  if (activations != "dynamic" && activations != "static")
    fail(ErrorCode::unsupported, "{}: activation_scheme \"{}\" is not one of dynamic, static", fields.origin(),
         activations);
  const std::vector<std::int64_t> block = fields.integers("weight_block_size");
  if (!block.empty() && (block.size() != 2 || block[0] < 1 || block[1] < 1))
    fail(ErrorCode::invalid_data, "{}: weight_block_size [{}], not two numbers above 0", fields.origin(),
         fmt::join(block, ", "));
  if (!block.empty() && activations == "static")
    fail(ErrorCode::unsupported, "{}: weight_block_size needs activation_scheme dynamic", fields.origin());
  QuantizedModules modules;
  QuantScheme& scheme = modules.scheme;
  scheme = block.empty() ? QuantScheme::fp8_w8a8() : QuantScheme::fp8_w8a8_block(block[0], block[1]);
  scheme.weights.type = scheme.activations.type = type;
  if (block.empty()) scheme.weights.group = ScaleGroup::per_tensor();
  if (activations == "static") {
    scheme.activations.group = ScaleGroup::per_tensor();
    scheme.activations.static_scale = true;
  }
  if (scales == "ue8m0") {
    scheme.activations.rounding = ScaleRounding::ratio_up;
    if (!block.empty()) scheme.weights.rounding = ScaleRounding::ratio_up;
  }
  add_group(to, std::move(modules), fields);
  ignore_listed(to, config, "modules_to_not_convert", fields);
  ignore_listed(to, config, "ignored_layers", fields);
}

void parse_fbgemm_fp8(const nlohmann::json& config, const ConfigFields& fields, QuantizationConfig& to) {
  check_members(to, config, ConfigObject::fbgemm_fp8, fields.origin());
  QuantScheme scheme = QuantScheme::fp8_w8a8();
  // Limits of a row's amax and scale. Source: FBGEMM, quantize_fp8_per_row; vLLM, dynamic_per_token_scaled_fp8_quant
  scheme.activations.most_amax = static_cast<float>(fields.number({{"activation_scale_ub"}, 1200}));
  scheme.activations.least_scale = 1.0F / (448 * 512);
  add_group(to, {{}, scheme, StoredForm::rows}, fields);
  ignore_listed(to, config, "modules_to_not_convert", fields);
}

void parse_mxfp4(const nlohmann::json& config, const ConfigFields& fields, QuantizationConfig& to) {
  check_members(to, config, ConfigObject::mxfp4, fields.origin());
  add_group(to, {{}, QuantScheme::mxfp4_w4a16(), StoredForm::blocks}, fields);
  ignore_listed(to, config, "modules_to_not_convert", fields);
}

void parse_modelopt(const nlohmann::json& config, const ConfigFields& fields, QuantizationConfig& to) {
  // hf_quant_config.json has the fields in an object "quantization", config.json has them beside quant_method.
  const nlohmann::json* nested = object_member(config, "quantization", fields);
  const nlohmann::json& inner = nested == nullptr ? config : *nested;
  if (nested != nullptr) check_members(to, config, ConfigObject::modelopt_file, fields.origin());
  check_members(to, inner, ConfigObject::modelopt, fields.origin());
  const ConfigFields inner_fields(inner, fields.origin());
  const std::string algorithm = inner_fields.text({{"quant_algo"}});
  QuantizedModules modules;
  QuantScheme& scheme = modules.scheme;
  if (algorithm == "FP8") {
    scheme = QuantScheme::fp8_w8a8();
    scheme.weights.group = scheme.activations.group = ScaleGroup::per_tensor();
    scheme.activations.static_scale = true;
  } else if (algorithm == "FP8_PER_CHANNEL_PER_TOKEN") {
    scheme = QuantScheme::fp8_w8a8();
  } else if (algorithm == "FP8_PB_WO") {
    scheme.weights = QuantScheme::fp8_w8a8_block().weights;
  } else if (algorithm == "NVFP4") {
    scheme = QuantScheme::nvfp4_w4a4();
    scheme.activations.static_scale = true;
    if (const std::int64_t group = group_extent(inner, "group_size", fields); group != 16 && group != ScaleGroup::whole)
      fail(ErrorCode::unsupported, "{}: NVFP4 with group_size {}, not 16", fields.origin(), group);
  } else if (algorithm == "MXFP8") {
    scheme = QuantScheme::mxfp8_w8a8();
    scheme.activations.rounding = ScaleRounding::ratio_up;  // Source: ModelOpt, MXFP8QTensor
  } else {
    fail(ErrorCode::unsupported,
         "{}: quant_algo \"{}\" is not one of FP8, FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO, NVFP4, MXFP8", fields.origin(),
         algorithm);
  }
  add_group(to, std::move(modules), fields);
  for (const char* name : {"exclude_modules", "ignore"}) ignore_listed(to, inner, name, fields);
}

}  // namespace moecl
