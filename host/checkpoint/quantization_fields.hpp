#pragma once
// Which members the objects of each producer's quantization_config may have, and what is done with them.
#include <moecl/quantization_config.hpp>

#include <nlohmann/json.hpp>

#include <string>

namespace moecl {

/// An object of a quantization_config, by who writes it.
enum class ConfigObject : std::uint8_t {
  gptq,
  gptq_override,  ///< of some modules, in "dynamic"
  awq,
  auto_round,
  auto_round_override,  ///< of some modules, in "extra_config"
  fp8,
  fbgemm_fp8,
  mxfp4,
  modelopt_file,  ///< hf_quant_config.json around its "quantization"
  modelopt,
  compressed_tensors,
  compressed_tensors_group,
  compressed_tensors_args,
  quark,
  quark_layer,
  quark_spec,
};

/// Adds a warning for each member that is not known: null says nothing.
/// Errors: unsupported  a member asks for what changes numbers here and is not done
void check_members(QuantizationConfig& to, const nlohmann::json& object, ConfigObject kind, const std::string& origin);

}  // namespace moecl
