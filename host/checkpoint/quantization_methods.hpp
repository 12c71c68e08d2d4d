#pragma once
// Readers of each producer's quantization_config. All of them fill a QuantizationConfig.
#include <moecl/quantization_config.hpp>

#include <nlohmann/json.hpp>

#include <string>

#include "host/checkpoint/config_fields.hpp"

namespace moecl {

/// As QuantizationConfig::parse, for JSON that is already parsed.
QuantizationConfig parse_quantization(const nlohmann::json& config, const std::string& origin);

/// Checks the scheme and adds the group.
/// Errors: unsupported  no product can have the scheme
void add_group(QuantizationConfig& to, QuantizedModules group, const ConfigFields& fields);
/// A list of names; empty when absent or null. Errors: invalid_data  not a list of strings
std::vector<std::string> text_list(const nlohmann::json& config, const char* name, const ConfigFields& fields);
void ignore_listed(QuantizationConfig& to, const nlohmann::json& config, const char* name, const ConfigFields& fields);
/// The object `name` within `config`; nullptr when absent or null. Errors: invalid_data  not an object
const nlohmann::json* object_member(const nlohmann::json& config, const char* name, const ConfigFields& fields);
/// A group size; -1, null or absent: the whole extent. Errors: invalid_data  0, below -1, or above 2^31 - 1
std::int64_t group_extent(const nlohmann::json& config, const char* name, const ConfigFields& fields);

// Each adds the groups and the ignored modules to `to`. Errors: as QuantizationConfig::parse
void parse_gptq(const nlohmann::json& config, const ConfigFields& fields, QuantizationConfig& to);
void parse_awq(const nlohmann::json& config, const ConfigFields& fields, QuantizationConfig& to);
void parse_auto_round(const nlohmann::json& config, const ConfigFields& fields, QuantizationConfig& to);
void parse_fp8(const nlohmann::json& config, const ConfigFields& fields, QuantizationConfig& to);
void parse_fbgemm_fp8(const nlohmann::json& config, const ConfigFields& fields, QuantizationConfig& to);
void parse_mxfp4(const nlohmann::json& config, const ConfigFields& fields, QuantizationConfig& to);
void parse_modelopt(const nlohmann::json& config, const ConfigFields& fields, QuantizationConfig& to);
void parse_compressed_tensors(const nlohmann::json& config, const ConfigFields& fields, QuantizationConfig& to);
void parse_quark(const nlohmann::json& config, const ConfigFields& fields, QuantizationConfig& to);

}  // namespace moecl
