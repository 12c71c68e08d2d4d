#pragma once
#include <nlohmann/json.hpp>

#include <string_view>

namespace moecl {

/// A tree of JSON that is parsed and let go of without a std::terminate where memory is out: the destructor of
/// nlohmann::json, which an error in the middle of its own parser runs too, allocates for each array and object that
/// is not empty. This one empties them first, the inner ones before the outer ones.
struct JsonDocument {
  nlohmann::json root;

  JsonDocument() = default;
  /// A copy, which takes care likewise.
  explicit JsonDocument(const nlohmann::json& of);
  JsonDocument(JsonDocument&&) noexcept = default;
  JsonDocument& operator=(JsonDocument&&) = delete;
  ~JsonDocument();
  operator const nlohmann::json&() const noexcept { return root; }

  /// Of objects with a key twice the last one counts.
  /// Errors: nlohmann::json::parse_error  no JSON; invalid_data  nested deeper than 256 levels
  static JsonDocument parse(std::string_view text);
};

}  // namespace moecl
