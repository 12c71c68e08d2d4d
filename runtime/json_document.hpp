#pragma once
#include <nlohmann/json.hpp>

#include <string_view>

namespace moecl {

/// A JSON tree that is parsed and destroyed without std::terminate when memory runs out. The destructor of
/// nlohmann::json allocates for each array and object that is not empty; an error in the middle of its own parser runs
/// it too. This type empties them first, inner ones before outer ones.
struct JsonDocument {
  nlohmann::json root;

  JsonDocument() = default;
  /// A copy, made with the same care.
  explicit JsonDocument(const nlohmann::json& of);
  JsonDocument(JsonDocument&&) noexcept = default;
  JsonDocument& operator=(JsonDocument&&) = delete;
  ~JsonDocument();
  operator const nlohmann::json&() const noexcept { return root; }

  /// If an object has a key twice, the last one counts.
  /// Errors: nlohmann::json::parse_error  no JSON; invalid_data  nested deeper than 256 levels
  static JsonDocument parse(std::string_view text);
};

}  // namespace moecl
