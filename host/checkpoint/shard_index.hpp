#pragma once
#include <nlohmann/json.hpp>

#include <string>
#include <unordered_map>

namespace moecl {

/// Reads a checkpoint's model.safetensors.index.json: gives the shard's file name for each tensor name.
///
/// @param origin  What messages call the index: its path.
/// Errors: invalid_data  no weight_map, or a shard that is no file name in the index's own directory
std::unordered_map<std::string, std::string> parse_shard_index(const nlohmann::json& index, const std::string& origin);

}  // namespace moecl
