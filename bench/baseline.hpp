#pragma once
#include <string>
#include <vector>

#include "bench/measured.hpp"

namespace moecl::bench {

/// A benchmark that both documents have.
struct Change {
  std::string name;
  double before = 0, now = 0;  ///< median seconds
  /// How much longer is not yet a regression, as a share: 5 %, or what the repetitions of both runs spread over if that
  /// is more. A run without repetitions counts as one that spreads as the other does.
  double noise = 0;

  double longer() const { return now / before - 1; }
  bool regressed() const { return longer() > noise; }
  /// As much shorter as would be a regression the other way round.
  bool improved() const { return before / now - 1 > noise; }
};

Change change_between(const Measured& before, const Measured& now);

/// Errors: invalid_data  `before` is of another device than `facts` are, or either machine was in a slow mode
void expect_comparable(const nlohmann::ordered_json& before, const std::string& origin,
                       const nlohmann::ordered_json& facts);
/// Errors: as expect_comparable; invalid_data  the documents have no benchmark in common
std::vector<Change> compare(const nlohmann::ordered_json& before, const std::string& origin,
                            const nlohmann::ordered_json& now);

}  // namespace moecl::bench
