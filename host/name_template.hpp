#pragma once
#include <string>
#include <string_view>

namespace moecl {

/// `text` with "{key}" replaced by `value`, where it occurs.
inline std::string substitute(std::string text, std::string_view key, std::string_view value) {
  const std::string token = "{" + std::string(key) + "}";
  const auto at = text.find(token);
  if (at != text.npos) text.replace(at, token.size(), value);
  return text;
}

}  // namespace moecl
