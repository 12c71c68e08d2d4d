#pragma once
// Finds the existing word that an unknown word was perhaps meant to be.
#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

namespace moecl::cli {

/// The number of letters to change, leave out, insert or exchange with their neighbour to make one word the other.
/// Capitals equal small letters, and '_' equals '-'.
/// Source: the distance of optimal string alignment
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
  const auto plain = [](char c) { return c == '_' ? '-' : std::tolower(static_cast<unsigned char>(c)); };
  const auto same = [&](std::size_t i, std::size_t j) { return plain(a[i - 1]) == plain(b[j - 1]); };
  std::vector<std::vector<std::size_t>> distance(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i)
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        distance[i][j] = i + j;
        continue;
      }
      distance[i][j] =
          std::min({distance[i - 1][j] + 1, distance[i][j - 1] + 1, distance[i - 1][j - 1] + (same(i, j) ? 0 : 1)});
      if (i > 1 && j > 1 && same(i, j - 1) && same(i - 1, j))
        distance[i][j] = std::min(distance[i][j], distance[i - 2][j - 2] + 1);
    }
  return distance[a.size()][b.size()];
}

/// "; did you mean mc2?": the nearest of `words`, if at most a third of the letters is wrong, or if `word` is the
/// beginning of it. Empty: none is near, or the word is one of them.
inline std::string did_you_mean(const std::string& word, const std::vector<std::string>& words) {
  if (word.size() > 100) return {};
  const std::string* nearest = nullptr;
  std::size_t least = 0;
  for (const std::string& one : words) {
    if (one == word) return {};
    const bool begins = word.size() >= 4 && one.rfind(word, 0) == 0;
    const std::size_t distance = begins ? 1 : edit_distance(word, one);
    if (3 * distance > std::max(word.size(), one.size()) || (nearest != nullptr && distance >= least)) continue;
    nearest = &one, least = distance;
  }
  return nearest == nullptr ? std::string() : "; did you mean " + *nearest + "?";
}

}  // namespace moecl::cli
