#pragma once
// The width and colours of the command's output.
#include <moecl/environment.hpp>

#include <cstdlib>
#include <string>
#include <string_view>
#include <unistd.h>

namespace moecl::cli {

/// The columns within which tables stay, on a terminal and in a file.
inline constexpr std::size_t line_width = 80;

/// The variables that the command reads beside the library's.
inline constexpr EnvironmentVariable command_variables[] = {
    {"NO_COLOR", "anything: no colours", "colours on a terminal"},
    {"TERM", "the terminal; dumb: no colours", "no colours"},
};

/// Source: no-color.org
inline bool has_colours() {
  const char* const none = std::getenv("NO_COLOR");
  const char* const terminal = std::getenv("TERM");
  return isatty(STDOUT_FILENO) != 0 && (none == nullptr || *none == '\0') && terminal != nullptr &&
         std::string_view(terminal) != "dumb";
}

inline std::string coloured(const std::string& text, int colour) {
  return has_colours() ? "\033[" + std::to_string(colour) + "m" + text + "\033[0m" : text;
}
/// Green if `right`, else red.
inline std::string verdict(bool right, const std::string& text) { return coloured(text, right ? 32 : 31); }
/// Colours a text that starts with its verdict: "ok (rel)", "FAIL: 3 of 4 values differ", "SLOWER"; others stay plain.
inline std::string verdict(const std::string& text) {
  const std::string_view word = std::string_view(text).substr(0, text.find_first_of(" :"));
  return word == "ok" || word == "FAIL" || word == "SLOWER" ? verdict(word == "ok", text) : text;
}

}  // namespace moecl::cli
