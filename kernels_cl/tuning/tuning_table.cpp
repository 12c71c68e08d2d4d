#include <moecl/environment.hpp>
#include <moecl/tuning_table.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>

#include "runtime/check.hpp"
#include "runtime/json_document.hpp"

namespace moecl::tuning {
namespace {

JsonDocument parse(std::string_view table) {
  try {
    JsonDocument data = JsonDocument::parse(table);
    for (const nlohmann::json& entry : data.root.at("entries"))
      if (!entry.at("match").is_object() || !entry.at("measured_on").is_string())
        fail(ErrorCode::invalid_data, "tuning table: match is no object or measured_on no text in {}", entry.dump());
    return data;
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorCode::invalid_data, "tuning table: {}", error.what());
  }
}

/// How closely an entry describes the device; negative if it describes other devices.
int closeness(const nlohmann::json& match, const DeviceCaps& caps) {
  int closest = 0;
  for (const auto& [property, value] : match.items()) {
    const std::string part = value.is_string() ? value.get<std::string>() : std::string();
    const std::string_view whole = property == "device"     ? std::string_view(caps.name)
                                   : property == "platform" ? std::string_view(caps.platform_name)
                                   : property == "type"     ? std::string_view(moecl::name(caps.type))
                                   : property == "vendor"   ? std::string_view(caps.vendor)
                                                            : std::string_view();
    if (part.empty() || whole.find(part) == std::string_view::npos) return -1;
    closest = std::max(closest, property == "device" ? 3 : property == "vendor" ? 1 : 2);
  }
  return closest;
}

}  // namespace

std::string user_file(std::string_view name) {
  std::string folder;
  // The XDG base directory specification: a relative path is invalid and ignored.
  if (const auto data = environment("XDG_DATA_HOME"); data && data->front() == '/')
    folder = *data;
  else if (const auto home = environment("HOME"))
    folder = *home + "/.local/share";
  else
    return {};
  return fmt::format("{}/moecl/tuning/{}.json", folder, name);
}

std::vector<Table> tables(std::string_view name, std::string_view shipped) {
  std::vector<Table> found;
  const std::string path = user_file(name);
  std::ifstream file(path);
  std::ostringstream text;
  if (!path.empty() && file && text << file.rdbuf()) found.push_back({text.str(), path});
  found.push_back({std::string(shipped), "shipped with moecl"});
  return found;
}

std::vector<Entry> matching_entries(std::string_view table, const DeviceCaps& caps) {
  constexpr std::array levels{"default", "vendor", "family", "device"};
  const JsonDocument data = parse(table);
  std::vector<Entry> found;
  for (int level = levels.size(); level-- > 0;)
    for (const nlohmann::json& entry : data.root["entries"])
      if (closeness(entry["match"], caps) == level)
        found.push_back({entry.dump(), levels[static_cast<std::size_t>(level)]});
  return found;
}

std::string find_entry(std::string_view table, const DeviceCaps& caps, const std::string& needed) {
  for (const Entry& found : matching_entries(table, caps)) {
    const JsonDocument entry = JsonDocument::parse(found.text);
    if (!entry.root.contains(needed)) fail(ErrorCode::invalid_data, "tuning table: no {} in {}", needed, found.text);
    if (!entry.root[needed].empty()) return found.text;
  }
  return {};
}

std::string with_entry(std::string_view table, std::string_view entry) {
  nlohmann::json data = std::move(parse(table).root), added = nlohmann::json::parse(entry),
                 entries = nlohmann::json::array({added});
  for (const nlohmann::json& other : data["entries"])
    if (other["match"] != added["match"]) entries.push_back(other);
  data["entries"] = entries;
  return data.dump(1) + "\n";
}

}  // namespace moecl::tuning
