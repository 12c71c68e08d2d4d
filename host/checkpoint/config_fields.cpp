#include "host/checkpoint/config_fields.hpp"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <type_traits>

#include "host/checkpoint/json_file.hpp"
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

bool is_int64(const nlohmann::json& value) {
  return value.is_number_integer() && (!value.is_number_unsigned() || value.get<std::uint64_t>() <= INT64_MAX);
}

bool is_one_of(const nlohmann::json& type, const std::array<const char*, 2>& types) {
  return std::any_of(types.begin(), types.end(), [&](const char* name) { return name != nullptr && type == name; });
}

/// The layers whose type is in `types`. `of_layers` is a list of type names, or a text with one letter per layer.
template <class Types>
std::vector<std::int64_t> layers_of_type(const Types& of_layers, const std::array<const char*, 2>& types) {
  std::vector<std::int64_t> layers;
  std::int64_t layer = 0;
  for (const auto& type : of_layers) {
    if constexpr (std::is_same_v<Types, std::string>) {
      if (is_one_of(std::string(1, type), types)) layers.push_back(layer);
    } else if (is_one_of(type, types)) {
      layers.push_back(layer);
    }
    ++layer;
  }
  return layers;
}

}  // namespace

/// Of a list with one value per layer, this layer's; of a list of equal values, that value; else the value itself.
const nlohmann::json& ConfigFields::of_layer(const nlohmann::json& value) const {
  if (!value.is_array() || value.empty()) return value;
  if (static_cast<std::int64_t>(value.size()) == layers_) return value[static_cast<std::size_t>(layer_)];
  const bool repeats =
      std::all_of(value.begin(), value.end(), [&](const nlohmann::json& item) { return item == value.front(); });
  return repeats ? value.front() : value;
}

bool ConfigFields::vary(std::int64_t layers) const {
  return std::any_of(config_.get().begin(), config_.get().end(), [&](const nlohmann::json& value) {
    return value.is_array() && static_cast<std::int64_t>(value.size()) == layers &&
           std::any_of(value.begin(), value.end(),
                       [&](const nlohmann::json& item) { return item.is_number() && item != value.front(); });
  });
}

const nlohmann::json* ConfigFields::find(const std::array<const char*, 3>& names) const {
  const nlohmann::json* found = nullptr;
  const char* found_name = nullptr;
  for (const char* name : names) {
    const nlohmann::json* value = name == nullptr ? nullptr : find_member(config_, name);
    if (value == nullptr) continue;
    if (found != nullptr && of_layer(*found) != of_layer(*value))
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
  const nlohmann::json& one = of_layer(*value);
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

std::optional<std::vector<std::int64_t>> ConfigFields::layers(const char* name,
                                                              const std::array<const char*, 2>& types) const {
  const nlohmann::json* value = find({name});
  if (value == nullptr) return std::nullopt;
  std::vector<std::int64_t> layers;
  if (value->is_string() && value->get<std::string>().find_first_of("0123456789,") == std::string::npos) {
    layers = layers_of_type(value->get<std::string>(), types);
  } else if (value->is_string()) {
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
    layers = layers_of_type(*value, types);
  } else {
    layers = integers(name);
  }
  std::sort(layers.begin(), layers.end());
  return layers;
}

std::optional<std::int64_t> ConfigFields::length(const char* name) const {
  const nlohmann::json* value = find({name});
  if (value == nullptr) return std::nullopt;
  return static_cast<std::int64_t>(value->is_string() ? value->get<std::string>().size() : value->size());
}

std::optional<std::vector<std::int64_t>> ConfigFields::flagged(const char* name, std::int64_t layers) const {
  const nlohmann::json* value = name == nullptr ? nullptr : find({name});
  if (value == nullptr || !value->is_array() || static_cast<std::int64_t>(value->size()) != layers) return std::nullopt;
  const std::vector<std::int64_t> flags = integers(name);
  std::vector<std::int64_t> flagged;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const std::int64_t flag = flags[static_cast<std::size_t>(layer)];
    if (flag != 0 && flag != 1)
      fail(ErrorCode::invalid_data, "{}: \"{}\" says {} of layer {}, not 0 or 1", origin_, name, flag, layer);
    if (flag == 1) flagged.push_back(layer);
  }
  return flagged;
}

bool ConfigFields::is_null(const char* name) const {
  const nlohmann::json& config = config_;
  return name != nullptr && config.contains(pointer_to(name)) && config.at(pointer_to(name)).is_null();
}

}  // namespace moecl
