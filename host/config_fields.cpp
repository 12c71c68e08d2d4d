#include "host/config_fields.hpp"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "host/json_file.hpp"
#include "runtime/check.hpp"

namespace moecl {
namespace {

std::string quoted(const std::array<const char*, 3>& names) {
  if (names[0] == nullptr) return "a constant of the family";
  std::string text;
  for (const char* name : names)
    if (name != nullptr) text += fmt::format("{}\"{}\"", text.empty() ? "" : " or ", name);
  return text;
}

/// The one value of a list that repeats it for each layer, else the value itself.
const nlohmann::json& value_of_layers(const nlohmann::json& value) {
  if (!value.is_array() || value.empty()) return value;
  for (const nlohmann::json& item : value)
    if (item != value.front()) return value;
  return value.front();
}

bool is_int64(const nlohmann::json& value) {
  return value.is_number_integer() && (!value.is_number_unsigned() || value.get<std::uint64_t>() <= INT64_MAX);
}

}  // namespace

const nlohmann::json* ConfigFields::find(const std::array<const char*, 3>& names) const {
  const nlohmann::json* found = nullptr;
  const char* found_name = nullptr;
  for (const char* name : names) {
    const nlohmann::json* value = name == nullptr ? nullptr : find_member(config_, name);
    if (value == nullptr) continue;
    if (found != nullptr && value_of_layers(*found) != value_of_layers(*value))
      fail(ErrorCode::invalid_data, "{}: \"{}\" is {} but \"{}\" is {}", origin_, found_name, found->dump(), name,
           value->dump());
    found = value;
    found_name = name;
  }
  return found;
}

template <class Result, class T, class Accepts>
Result ConfigFields::read(const Field<T>& field, const char* type, Accepts accepts) const {
  const nlohmann::json* value = find(field.names);
  if (value == nullptr) {
    if (!field.fallback) fail(ErrorCode::invalid_data, "{}: no {}", origin_, quoted(field.names));
    return Result(*field.fallback);
  }
  const nlohmann::json& one = value_of_layers(*value);
  if (!accepts(one))
    fail(ErrorCode::invalid_data, "{}: {} is {}, not {}", origin_, quoted(field.names), value->dump(), type);
  return one.get<Result>();
}

std::int64_t ConfigFields::integer(const Field<std::int64_t>& field) const {
  return read<std::int64_t>(field, "an integer", is_int64);
}

double ConfigFields::number(const Field<double>& field) const {
  return read<double>(field, "a number", [](const nlohmann::json& value) { return value.is_number(); });
}

bool ConfigFields::boolean(const Field<bool>& field) const {
  return read<bool>(field, "true or false", [](const nlohmann::json& value) { return value.is_boolean(); });
}

std::string ConfigFields::text(const Field<const char*>& field) const {
  return read<std::string>(field, "a string", [](const nlohmann::json& value) { return value.is_string(); });
}

std::int64_t ConfigFields::size(const Field<std::int64_t>& field) const {
  const std::int64_t value = integer(field);
  if (value < 1 || value > INT32_MAX)
    fail(ErrorCode::invalid_data, "{}: {} is {}, not from 1 to 2^31 - 1", origin_, quoted(field.names), value);
  return value;
}

std::vector<std::int64_t> ConfigFields::integers(const char* name) const {
  const nlohmann::json* list = find({name});
  if (list == nullptr) return {};
  if (!list->is_array()) fail(ErrorCode::invalid_data, "{}: \"{}\" is {}, not a list", origin_, name, list->dump());
  std::vector<std::int64_t> result;
  for (const nlohmann::json& item : *list) {
    if (!is_int64(item))
      fail(ErrorCode::invalid_data, "{}: \"{}\" holds {}, not an integer", origin_, name, item.dump());
    result.push_back(item.get<std::int64_t>());
  }
  return result;
}

std::optional<std::vector<std::int64_t>> ConfigFields::layers(const char* name, const char* type) const {
  const nlohmann::json* value = find({name});
  if (value == nullptr) return std::nullopt;
  std::vector<std::int64_t> layers;
  if (value->is_string()) {
    std::stringstream text(value->get<std::string>());
    for (std::string item; std::getline(text, item, ',');) {
      item.erase(0, item.find_first_not_of(' '));
      std::int64_t layer = 0;
      const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), layer);
      if (error != std::errc() || end != item.data() + item.size())
        fail(ErrorCode::invalid_data, "{}: \"{}\" holds \"{}\", not an integer", origin_, name, item);
      layers.push_back(layer);
    }
  } else if (value->is_array() && !value->empty() && value->front().is_string()) {
    for (std::size_t layer = 0; layer < value->size(); ++layer)
      if ((*value)[layer] == type) layers.push_back(static_cast<std::int64_t>(layer));
  } else {
    layers = integers(name);
  }
  std::sort(layers.begin(), layers.end());
  return layers;
}

bool ConfigFields::is_null(const char* name) const {
  const auto found = name == nullptr ? config_.end() : config_.find(name);
  return found != config_.end() && found->is_null();
}

}  // namespace moecl
