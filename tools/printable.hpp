#pragma once
// Makes text of files and drivers safe to print on a terminal.
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace moecl::cli {

/// Controls, and invisible characters that change how others are shown: marks of direction, separators of lines,
/// joiners, invisible signs and tags. Source: Unicode's categories Cc, Cf, Zl and Zp, those of scripts left out
constexpr bool is_obeyed(char32_t code) {
  constexpr std::array<std::pair<char32_t, char32_t>, 11> ranges{{{0x00, 0x1f},
                                                                  {0x7f, 0x9f},
                                                                  {0xad, 0xad},
                                                                  {0x61c, 0x61c},
                                                                  {0x180e, 0x180e},
                                                                  {0x200b, 0x200f},
                                                                  {0x2028, 0x202e},
                                                                  {0x2060, 0x206f},
                                                                  {0xfeff, 0xfeff},
                                                                  {0xfff9, 0xfffb},
                                                                  {0xe0000, 0xe0fff}}};
  for (const auto& [first, last] : ranges)
    if (code >= first && code <= last) return true;
  return false;
}

/// The size in bytes and the code of the first character; 0 bytes if the text does not begin with valid UTF-8.
inline std::pair<std::size_t, char32_t> first_character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  const std::size_t bytes = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
  if (bytes == 0 || bytes > text.size()) return {0, 0};
  char32_t code = bytes == 1 ? lead : lead & (0x7fU >> bytes);
  for (const char next : text.substr(1, bytes - 1)) {
    if ((next & 0xc0) != 0x80) return {0, 0};
    code = code << 6 | (next & 0x3f);
  }
  // Overlong forms, halves of UTF-16 and codes beyond Unicode are no characters.
  const bool wrong = (bytes == 3 && (code < 0x800 || (code >= 0xd800 && code < 0xe000))) ||
                     (bytes == 4 && (code < 0x10000 || code > 0x10ffff));
  return wrong ? std::pair<std::size_t, char32_t>{0, 0} : std::pair{bytes, code};
}

/// The text, with a '?' for each character that a terminal would obey instead of showing it, and for each byte that is
/// not UTF-8.
inline std::string printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const auto [bytes, code] = first_character(text);
    const bool shows = bytes != 0 && !is_obeyed(code);
    shown += shows ? text.substr(0, bytes) : "?";
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return shown;
}

}  // namespace moecl::cli
