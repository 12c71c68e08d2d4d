#pragma once
// How ranks share out rows.
#include <algorithm>
#include <cstdint>
#include <vector>

namespace moecl {

/// Equal shares of `total`; each of the first ones has one more if it does not divide. Share `index` is rows [begin,
/// begin + count).
struct Share {
  std::int64_t begin, count;
};
inline Share share_of(std::int64_t total, std::int32_t shares, std::int32_t index) {
  const std::int64_t base = total / shares, more = total % shares;
  return {index * base + std::min<std::int64_t>(index, more), base + (index < more ? 1 : 0)};
}

/// The sizes of all shares.
inline std::vector<std::int64_t> shares_of(std::int64_t total, std::int32_t shares) {
  std::vector<std::int64_t> counts;
  counts.reserve(static_cast<std::size_t>(shares));
  for (std::int32_t index = 0; index < shares; ++index) counts.push_back(share_of(total, shares, index).count);
  return counts;
}

}  // namespace moecl
