#include "host/config_fields.hpp"

#include "host/json_file.hpp"
#include "runtime/check.hpp"

namespace moecl {
namespace {

std::string quoted(const std::array<const char*, 2>& names) {
  if (names[0] == nullptr) return "a constant of the family";
  return names[1] == nullptr ? fmt::format("\"{}\"", names[0]) : fmt::format("\"{}\" or \"{}\"", names[0], names[1]);
}

bool is_int64(const nlohmann::json& value) {
  return value.is_number_integer() && (!value.is_number_unsigned() || value.get<std::uint64_t>() <= INT64_MAX);
}

}  // namespace

const nlohmann::json* ConfigFields::find(const std::array<const char*, 2>& names) const {
  const nlohmann::json* found = nullptr;
  for (const char* name : names) {
    const nlohmann::json* value = name == nullptr ? nullptr : find_member(config_, name);
    if (value == nullptr) continue;
    if (found != nullptr && *found != *value)
      fail(ErrorCode::invalid_data, "{}: \"{}\" is {} but \"{}\" is {}", origin_, names[0], found->dump(), names[1],
           value->dump());
    found = value;
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
  if (!accepts(*value))
    fail(ErrorCode::invalid_data, "{}: {} is {}, not {}", origin_, quoted(field.names), value->dump(), type);
  return value->get<Result>();
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
  const nlohmann::json* list = find({name, nullptr});
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

bool ConfigFields::is_null(const char* name) const {
  const auto found = name == nullptr ? config_.end() : config_.find(name);
  return found != config_.end() && found->is_null();
}

}  // namespace moecl
