#pragma once
// Checks that ranks agree, and names the rank that differs.
#include <moecl/agreed.hpp>

#include <functional>

namespace moecl {

/// @param ranks     their numbers; the others are compared to the first
/// @param value_of  the value of ranks[r] for mine[i]
/// Errors: invalid_argument  the first difference, the same on every rank: "dispatch: wire: rank 1 has int8, rank 0 has
///         none"
void expect_agreement(const std::string& call, const std::vector<Agreed>& mine, const std::vector<std::int32_t>& ranks,
                      const std::function<std::int64_t(std::size_t r, std::size_t i)>& value_of);

}  // namespace moecl
