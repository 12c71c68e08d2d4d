#pragma once
// Which members each producer's quantization_config may have, and which are read, ignored or refused.
#include <moecl/quantization_config.hpp>

#include <nlohmann/json.hpp>

#include <string>

namespace moecl {

/// The kinds of objects in a quantization_config, by producer.
enum class ConfigObject : std::uint8_t {
  gptq,
  gptq_override,  ///< overrides for some modules, in "dynamic"
  awq,
  auto_round,
  auto_round_override,  ///< overrides for some modules, in "extra_config"
  fp8,
  fbgemm_fp8,
  mxfp4,
  modelopt_file,  ///< hf_quant_config.json, the object around "quantization"
  modelopt,
  compressed_tensors,
  compressed_tensors_group,
  compressed_tensors_args,
  quark,
  quark_layer,
  quark_spec,
};

/// Adds a warning for each unknown member that is not null.
/// Errors: unsupported  a member asks for something that would change numbers and is not implemented here
void check_members(QuantizationConfig& to, const nlohmann::json& object, ConfigObject kind, const std::string& origin);

}  // namespace moecl
