#pragma once
#include <moecl/model_config.hpp>

#include <nlohmann/json.hpp>

#include <string>

namespace moecl {

/// Applies a router spec, the user's description of a layer (host/ROUTER_SPEC.md): its values replace those of `base`.
/// Errors: invalid_data  an unknown member, a value of a wrong type, or a description that is not complete or not sound
///         unsupported   an unknown function
ModelConfig apply_router_spec(const nlohmann::json& spec, const std::string& origin, ModelConfig base);

}  // namespace moecl
