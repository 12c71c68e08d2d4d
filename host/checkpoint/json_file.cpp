#include "host/checkpoint/json_file.hpp"

#include <algorithm>
#include <set>
#include <vector>

#include "host/checkpoint/input_file.hpp"
#include "runtime/check.hpp"

namespace moecl {
namespace {

constexpr std::uint64_t max_file_bytes = 100'000'000;

}  // namespace

nlohmann::json parse_json(std::string_view text, const std::string& origin, int max_depth) {
  using json = nlohmann::json;
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto check = [&](int depth, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start || event == json::parse_event_t::array_start) {
      if (depth >= max_depth) fail(ErrorCode::invalid_data, "{}: JSON nested deeper than {} levels", origin, max_depth);
      if (event == json::parse_event_t::object_start) keys.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      keys.pop_back();
    } else if (event == json::parse_event_t::key) {
      const auto& key = value.get_ref<const std::string&>();
      if (!keys.back().insert(key).second) fail(ErrorCode::invalid_data, "{}: key \"{}\" occurs twice", origin, key);
    }
    return true;
  };
  // The parser takes a NUL for the end of the text and would not see what follows.
  if (const auto nul = text.find('\0'); nul != text.npos)
    fail(ErrorCode::invalid_data, "{}: a NUL byte at offset {} of the JSON", origin, nul);
  json parsed;
  try {
    parsed = json::parse(text.begin(), text.end(), check);
  } catch (const json::exception& error) {
    fail(ErrorCode::invalid_data, "{}: {}", origin, error.what());
  }
  if (!parsed.is_object())
    fail(ErrorCode::invalid_data, "{}: expected a JSON object, got {}", origin, parsed.type_name());
  return parsed;
}

nlohmann::json read_json_file(const std::string& path) {
  const InputFile file(path);
  if (file.size() > max_file_bytes)
    fail(ErrorCode::invalid_data, "{}: {} bytes of JSON, more than {}", path, file.size(), max_file_bytes);
  return parse_json(file.text(0, file.size()), path);
}

nlohmann::json::json_pointer pointer_to(const std::string& path) {
  std::string pointer = "/" + path;
  std::replace(pointer.begin(), pointer.end(), '.', '/');
  return nlohmann::json::json_pointer(pointer);
}

const nlohmann::json* find_member(const nlohmann::json& object, const std::string& path) {
  const nlohmann::json::json_pointer pointer = pointer_to(path);
  if (!object.contains(pointer)) return nullptr;
  const nlohmann::json& found = object.at(pointer);
  return found.is_null() ? nullptr : &found;
}

}  // namespace moecl
