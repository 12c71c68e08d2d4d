#include "host/checkpoint/shard_index.hpp"

#include "host/checkpoint/json_file.hpp"
#include "runtime/check.hpp"

namespace moecl {
namespace {

/// A shard is in the model's own directory: an untrusted index must not open files elsewhere.
bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == name.npos && name.find('\0') == name.npos;
}

}  // namespace

std::unordered_map<std::string, std::string> parse_shard_index(const nlohmann::json& index, const std::string& origin) {
  const nlohmann::json* map = find_member(index, "weight_map");
  if (map == nullptr || !map->is_object())
    fail(ErrorCode::invalid_data, "{}: no \"weight_map\" object of tensor names and shard files", origin);
  std::unordered_map<std::string, std::string> shard_of;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string() || !is_plain_file_name(shard.get<std::string>()))
      fail(ErrorCode::invalid_data, "{}: tensor \"{}\" is in {}, not a file name in this directory", origin, tensor,
           shard.dump());
    shard_of.emplace(tensor, shard.get<std::string>());
  }
  return shard_of;
}

}  // namespace moecl
