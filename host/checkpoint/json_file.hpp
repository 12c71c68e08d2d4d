#pragma once
#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

#include "runtime/json_document.hpp"

namespace moecl {

/// @param origin     What messages call the text: a path, or "header of <path>".
/// @param max_depth  Deepest nesting accepted, so that a hostile text cannot exhaust memory or the stack.
/// Errors: invalid_data  bad JSON, deeper nesting, a key twice in one object, or the top is not an object
JsonDocument parse_json(std::string_view text, const std::string& origin, int max_depth = 64);

/// Reads config.json, an index and the like: files of at most 100 MB.
/// Errors: io_error, invalid_data
JsonDocument read_json_file(const std::string& path);

/// "a.b" as a pointer to member b of member a.
nlohmann::json::json_pointer pointer_to(const std::string& path);
/// The member of `object` at `path`; "a.b" is member b of member a. nullptr when it is absent or null.
const nlohmann::json* find_member(const nlohmann::json& object, const std::string& path);

}  // namespace moecl
