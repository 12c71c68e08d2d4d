#pragma once
// Quotes text for a shell.
#include <string>

namespace moecl::cli {

inline std::string replaced(std::string text, char what, const std::string& by) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, 1, by);
  return text;
}

/// Puts text between single quotes, for sh, bash and zsh.
inline std::string quoted(const std::string& text) { return "'" + replaced(text, '\'', "'\\''") + "'"; }

}  // namespace moecl::cli
