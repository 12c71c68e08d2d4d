#pragma once
// Whether ranks agree, and who differs.
#include <moecl/agreed.hpp>

#include <functional>

namespace moecl {

/// @param ranks     who they are; the first is whom the others are compared to
/// @param value_of  what ranks[r] has for mine[i]
/// Errors: invalid_argument  the first difference, the same on every rank: "dispatch: wire: rank 1 has int8, rank 0 has
///         none"
void expect_agreement(const std::string& call, const std::vector<Agreed>& mine, const std::vector<std::int32_t>& ranks,
                      const std::function<std::int64_t(std::size_t r, std::size_t i)>& value_of);

}  // namespace moecl
