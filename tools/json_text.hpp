#pragma once
#include <nlohmann/json.hpp>

#include <string>

namespace moecl::cli {

/// JSON with texts of files and drivers on its way to a terminal: ASCII, and U+FFFD for bytes that are none of UTF-8.
inline std::string json_text(const nlohmann::ordered_json& document, int indent) {
  return document.dump(indent, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace moecl::cli
