#pragma once
// Decides which part of a large set of cases a test run executes.
#include <cstddef>
#include <cstdlib>

namespace moecl::test {

/// Whether every case of every set runs: with MOECL_TEST_ALL=1 tools/test, or in a run by name (CONTRIBUTING.md).
inline bool all_cases() {
  static const bool all = std::getenv("MOECL_TEST_ALL") != nullptr;
  return all;
}

/// Whether the case runs: one in `every`. For a product of two sets, `number` is the sum of both members' numbers. So
/// each member of either set runs with some members of the other set.
inline bool is_sampled(std::size_t number, std::size_t every) { return all_cases() || number % every == 0; }

}  // namespace moecl::test
