#pragma once
// How much of a large set of cases a run of the tests takes.
#include <cstddef>
#include <cstdlib>

namespace moecl::test {

/// Whether every case of every set runs: MOECL_TEST_ALL=1 tools/test, a run by name (CONTRIBUTING.md).
inline bool all_cases() {
  static const bool all = std::getenv("MOECL_TEST_ALL") != nullptr;
  return all;
}

/// Whether the case runs: one in `every`. A product of two sets is numbered by the sum of both numbers, so that each
/// member of either set runs with some of the other's.
inline bool is_sampled(std::size_t number, std::size_t every) { return all_cases() || number % every == 0; }

}  // namespace moecl::test
