#pragma once
#include <moecl/model_config.hpp>

#include <nlohmann/json.hpp>

#include <string>

#include "host/checkpoint/config_fields.hpp"

namespace moecl {

/// Reads a config.json of a family in the table.
/// Errors: as ModelConfig::parse
ModelConfig read_family_config(const nlohmann::json& config, const std::string& origin);
/// Reads what does not depend on the family: number of layers, hidden size, dtype, quantization.
ModelConfig read_common_config(const nlohmann::json& config, const std::string& origin);
bool is_known_family(const nlohmann::json& config, const std::string& origin);

/// The language model's part of a config.json. Families that hold more than one model keep it in a member; for all
/// others it is the whole config.json.
struct TextConfig {
  const nlohmann::json* config;
  std::string member;  ///< its path; empty: the whole config.json
  std::string root;    ///< replaces "model." at the beginning of a tensor's name

  ConfigFields fields(const std::string& origin) const;
};
/// Errors: invalid_data  the member is missing
TextConfig find_text_config(const nlohmann::json& config, const std::string& origin);

/// The enumerator for a name in config.json or in a router spec.
/// Errors: unsupported  the message lists the known names
ScoreFunction score_function(const std::string& name, const std::string& origin);
ActivationFunction activation_function(const std::string& name, const std::string& origin);
DType config_dtype(const std::string& name, const std::string& origin);

/// Errors: invalid_data  an impossible shape: more experts per token than experts, groups that do not fit, ...
void expect_sound(const MoeShape& shape, const std::string& origin);

}  // namespace moecl
