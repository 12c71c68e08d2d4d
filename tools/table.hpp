#pragma once
// Aligned columns for people; scripts use --json.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tools/printable.hpp"

namespace moecl::cli {

using Row = std::vector<std::string>;

/// The first row is the header. Columns whose cells all start with a digit are right-aligned. Cells are `printable`.
inline std::string table(std::vector<Row> rows) {
  for (Row& row : rows)
    for (std::string& cell : row) cell = printable(cell);
  std::vector<std::size_t> width(rows.front().size());
  std::vector<bool> numeric(rows.front().size(), rows.size() > 1);
  for (std::size_t r = 0; r < rows.size(); ++r)
    for (std::size_t c = 0; c < width.size(); ++c) {
      width[c] = std::max(width[c], rows[r][c].size());
      if (r > 0) numeric[c] = numeric[c] && !rows[r][c].empty() && rows[r][c][0] >= '0' && rows[r][c][0] <= '9';
    }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < width.size(); ++c)
      line += numeric[c] ? fmt::format("{:>{}}  ", row[c], width[c]) : fmt::format("{:<{}}  ", row[c], width[c]);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace moecl::cli
