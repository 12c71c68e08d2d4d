#include "dispatch/processes/link.hpp"

#include <algorithm>

namespace moecl {

std::vector<std::int32_t> far_more_silent(const std::vector<std::chrono::microseconds>& times,
                                          std::chrono::milliseconds longest) {
  // On a loaded machine a live process may be starved for less than this.
  constexpr std::chrono::microseconds least{250000};
  const std::chrono::microseconds half = *std::max_element(times.begin(), times.end()) / 2,
                                  from = std::max({least, half, std::chrono::microseconds(longest) / 3});
  std::vector<std::int32_t> ranks;
  for (std::size_t rank = 0; rank < times.size(); ++rank)
    if (times[rank] >= from) ranks.push_back(static_cast<std::int32_t>(rank));
  return ranks;
}

std::string accused(Link& link, const std::vector<std::int32_t>& peers) {
  link.give_up(peers);
  std::string words;
  for (const std::int32_t peer : peers) words += (words.empty() ? "" : ", ") + link.describe(peer);
  return words;
}

}  // namespace moecl
