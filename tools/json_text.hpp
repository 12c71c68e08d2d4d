#pragma once
#include <nlohmann/json.hpp>

#include <string>

namespace moecl::cli {

/// JSON for a terminal, with texts of files and drivers: ASCII, with U+FFFD for bytes that are not UTF-8.
inline std::string json_text(const nlohmann::ordered_json& document, int indent) {
  return document.dump(indent, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace moecl::cli
