#pragma once
// Aligned columns for people; scripts use --json.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "tools/printable.hpp"
#include "tools/terminal.hpp"

namespace moecl::cli {

using Row = std::vector<std::string>;

constexpr std::string_view word_ends = " /,_-";

/// Bytes of the longest word, including the character that ends it.
inline std::size_t longest_word(std::string_view text) {
  std::size_t longest = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(word_ends), text.size() - 1) + 1;
    longest = std::max(longest, end);
    text.remove_prefix(end);
  }
  return longest;
}

/// Cuts text into parts of at most `width` bytes, after a word if possible, and never within a character.
inline std::vector<std::string> wrapped(std::string_view text, std::size_t width) {
  std::vector<std::string> parts;
  while (text.size() > width) {
    const std::size_t found = text.substr(0, width).find_last_of(word_ends);
    std::size_t cut = found == std::string_view::npos || found < width / 3 ? width : found + 1;
    while (cut > 1 && (text[cut] & 0xc0) == 0x80) --cut;
    const std::string_view part = text.substr(0, cut);
    parts.emplace_back(part.substr(0, part.find_last_not_of(' ') + 1));
    text.remove_prefix(cut);
  }
  parts.emplace_back(text);
  return parts;
}

/// The first row is the header. Columns whose cells all start with a digit are right-aligned. Cells are made
/// `printable`. Cells wrap where a line would exceed `most` columns (0: no limit); a word is cut only if nothing else
/// helps. The last cell may be a verdict.
inline std::string table(std::vector<Row> rows, std::size_t most = line_width) {
  for (Row& row : rows)
    for (std::string& cell : row) cell = printable(cell);
  std::vector<std::size_t> width(rows.front().size()), word(rows.front().size(), 4);
  std::vector<bool> numeric(rows.front().size(), rows.size() > 1);
  for (std::size_t r = 0; r < rows.size(); ++r)
    for (std::size_t c = 0; c < width.size(); ++c) {
      width[c] = std::max(width[c], rows[r][c].size());
      word[c] = std::max(word[c], longest_word(rows[r][c]));
      if (r > 0) numeric[c] = numeric[c] && !rows[r][c].empty() && rows[r][c][0] >= '0' && rows[r][c][0] <= '9';
    }
  const auto too_wide = [&] { return std::accumulate(width.begin(), width.end(), 2 * (width.size() - 1)) > most; };
  for (const bool keep_words : {true, false})
    while (most != 0 && too_wide()) {
      std::size_t widest = width.size();
      for (std::size_t c = 0; c < width.size(); ++c)
        if (width[c] > (keep_words ? word[c] : 4) && (widest == width.size() || width[c] > width[widest])) widest = c;
      if (widest == width.size()) break;
      --width[widest];
    }
  std::string text;
  for (const Row& row : rows) {
    std::vector<std::vector<std::string>> cells;
    std::size_t lines = 1;
    for (std::size_t c = 0; c < width.size(); ++c) {
      cells.push_back(wrapped(row[c], std::max(width[c], std::size_t{1})));
      lines = std::max(lines, cells[c].size());
    }
    for (std::size_t l = 0; l < lines; ++l) {
      std::string line;
      for (std::size_t c = 0; c < width.size(); ++c) {
        const std::string cell = l < cells[c].size() ? cells[c][l] : "";
        line += numeric[c] ? fmt::format("{:>{}}  ", cell, width[c]) : fmt::format("{:<{}}  ", cell, width[c]);
      }
      line.erase(line.find_last_not_of(' ') + 1);
      if (const std::string& last = cells.back().front(); l == 0 && line.ends_with(last))
        line.replace(line.size() - last.size(), last.size(), verdict(last));
      text += line + "\n";
    }
  }
  return text;
}

}  // namespace moecl::cli
