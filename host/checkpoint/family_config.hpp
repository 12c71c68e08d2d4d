#pragma once
#include <moecl/model_config.hpp>

#include <nlohmann/json.hpp>

#include <string>

#include "host/checkpoint/config_fields.hpp"

namespace moecl {

/// What the table of families makes of a config.json.
/// Errors: as ModelConfig::parse
ModelConfig read_family_config(const nlohmann::json& config, const std::string& origin);
/// What can be read of a config.json whatever the family: number of layers, hidden size, dtype, quantization.
ModelConfig read_common_config(const nlohmann::json& config, const std::string& origin);
bool is_known_family(const nlohmann::json& config, const std::string& origin);

/// The language model's part of a config.json: a member of it for families that hold more than one model, else itself.
struct TextConfig {
  const nlohmann::json* config;
  std::string member;  ///< empty: itself
  std::string root;    ///< what "model." in front of a tensor's name becomes

  ConfigFields fields(const std::string& origin) const;
};
/// Errors: invalid_data  the member is missing
TextConfig find_text_config(const nlohmann::json& config, const std::string& origin);

/// The value of a name that config.json or a spec uses for an enumerator.
/// Errors: unsupported  the message lists the known names
ScoreFunction score_function(const std::string& name, const std::string& origin);
ActivationFunction activation_function(const std::string& name, const std::string& origin);
DType config_dtype(const std::string& name, const std::string& origin);

/// Errors: invalid_data  what no layer can be: more experts per token than there are, groups that do not fit, ...
void expect_sound(const MoeShape& shape, const std::string& origin);

}  // namespace moecl
