#include <moecl/quantization_config.hpp>

#include <fmt/ranges.h>

#include "host/checkpoint/json_file.hpp"
#include "host/checkpoint/quantization_methods.hpp"
#include "runtime/check.hpp"

namespace moecl {
namespace {

struct Method {
  const char* name;  ///< quant_method
  void (*parse)(const nlohmann::json&, const ConfigFields&, QuantizationConfig&);
};

constexpr Method methods[] = {
    {"gptq", parse_gptq},
    {"awq", parse_awq},
    {"auto-round", parse_auto_round},
    {"intel/auto-round", parse_auto_round},
    {"compressed-tensors", parse_compressed_tensors},
    {"fp8", parse_fp8},
    {"fbgemm_fp8", parse_fbgemm_fp8},
    {"mxfp4", parse_mxfp4},
    {"modelopt", parse_modelopt},
    {"modelopt_fp4", parse_modelopt},
    {"quark", parse_quark},
};

/// hf_quant_config.json of ModelOpt names its producer, not a method.
std::string method_of(const nlohmann::json& config, const ConfigFields& fields) {
  const bool modelopt = find_member(config, "quantization") != nullptr || find_member(config, "quant_algo") != nullptr;
  return modelopt ? fields.text({{"quant_method"}, "modelopt"}) : fields.text({{"quant_method"}});
}

bool any_matches(const std::vector<ModulePattern>& patterns, std::string_view module) {
  for (const ModulePattern& pattern : patterns)
    if (pattern.matches(module)) return true;
  return false;
}

}  // namespace

QuantizationConfig parse_quantization(const nlohmann::json& config, const std::string& origin) {
  const ConfigFields fields(config, origin);
  QuantizationConfig result;
  result.method = method_of(config, fields);
  std::vector<const char*> known;
  for (const Method& method : methods) {
    if (result.method == method.name) {
      method.parse(config, fields, result);
      return result;
    }
    known.push_back(method.name);
  }
  fail(ErrorCode::unsupported, "{}: quant_method \"{}\" is not one of {}", origin, result.method,
       fmt::join(known, ", "));
}

QuantizationConfig QuantizationConfig::parse(const std::string& json, const std::string& origin) {
  return parse_quantization(parse_json(json, origin), origin);
}

std::string module_of(const std::string& tensor_name) {
  constexpr std::string_view plain = ".weight";
  return tensor_name.ends_with(plain) ? tensor_name.substr(0, tensor_name.size() - plain.size()) : tensor_name;
}

const QuantizedModules* QuantizationConfig::find(std::string_view module) const {
  if (any_matches(ignored, module)) return nullptr;
  for (const QuantizedModules& group : groups)
    if (!group.targets.empty() && any_matches(group.targets, module)) return &group;
  for (const QuantizedModules& group : groups)
    if (group.targets.empty()) return &group;
  return nullptr;
}

bool QuantizationConfig::may_ignore(std::string_view module) const {
  for (const ModulePattern& pattern : ignored)
    if (pattern.occurs_in(module)) return true;
  return false;
}

void add_group(QuantizationConfig& to, QuantizedModules group, const ConfigFields& fields) {
  if (const std::string why = reject(group.scheme); !why.empty())
    fail(ErrorCode::unsupported, "{}: {}", fields.origin(), why);
  to.groups.push_back(std::move(group));
}

std::vector<std::string> text_list(const nlohmann::json& config, const char* name, const ConfigFields& fields) {
  const nlohmann::json* list = find_member(config, name);
  if (list == nullptr) return {};
  if (!list->is_array())
    fail(ErrorCode::invalid_data, "{}: \"{}\" is {}, not a list", fields.origin(), name, list->dump());
  std::vector<std::string> result;
  for (const nlohmann::json& item : *list) {
    if (!item.is_string())
      fail(ErrorCode::invalid_data, "{}: \"{}\" holds {}, not a string", fields.origin(), name, item.dump());
    result.push_back(item.get<std::string>());
  }
  return result;
}

void ignore_listed(QuantizationConfig& to, const nlohmann::json& config, const char* name, const ConfigFields& fields) {
  for (std::string& text : text_list(config, name, fields)) to.ignored.emplace_back(std::move(text), fields.origin());
}

const nlohmann::json* object_member(const nlohmann::json& config, const char* name, const ConfigFields& fields) {
  const nlohmann::json* member = find_member(config, name);
  if (member != nullptr && !member->is_object())
    fail(ErrorCode::invalid_data, "{}: \"{}\" is {}, not an object", fields.origin(), name, member->dump());
  return member;
}

std::int64_t group_extent(const nlohmann::json& config, const char* name, const ConfigFields& fields) {
  const std::int64_t size = ConfigFields(config, fields.origin()).integer({{name}, ScaleGroup::whole});
  if (size != ScaleGroup::whole && (size < 1 || size > INT32_MAX))
    fail(ErrorCode::invalid_data, "{}: \"{}\" is {}, neither -1 nor from 1 to 2^31 - 1", fields.origin(), name, size);
  return size;
}

}  // namespace moecl
