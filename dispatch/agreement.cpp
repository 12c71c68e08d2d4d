#include "dispatch/agreement.hpp"

#include <xxhash.h>

#include "runtime/check.hpp"

namespace moecl {

std::int64_t digest_of(const void* bytes, std::size_t count) noexcept {
  return static_cast<std::int64_t>(XXH3_64bits(bytes, count));
}

std::string Agreed::said_as_number(std::int64_t value) { return fmt::format("{}", value); }
std::string Agreed::said_as_digest(std::int64_t value) {
  return fmt::format("digest {:016x}", static_cast<std::uint64_t>(value));
}

void expect_agreement(const std::string& call, const std::vector<Agreed>& mine, const std::vector<std::int32_t>& ranks,
                      const std::function<std::int64_t(std::size_t r, std::size_t i)>& value_of) {
  for (std::size_t r = 1; r < ranks.size(); ++r)
    for (std::size_t i = 0; i < mine.size(); ++i)
      if (const std::int64_t here = value_of(0, i), there = value_of(r, i); here != there)
        fail(ErrorCode::invalid_argument, "{}: {}: rank {} has {}, rank {} has {}", call, mine[i].what, ranks[r],
             mine[i].said(there), ranks[0], mine[i].said(here));
}

}  // namespace moecl
