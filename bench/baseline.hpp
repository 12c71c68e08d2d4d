#pragma once
#include <string>
#include <vector>

#include "bench/measured.hpp"

namespace moecl::bench {

/// A benchmark that both documents have.
struct Change {
  std::string name;
  double before = 0, now = 0;  ///< median seconds
  /// The relative slowdown that still counts as noise: 5 %, or the spread of the repetitions of either run if that is
  /// larger. A run without repetitions takes the spread of the other run.
  double noise = 0;

  double longer() const { return now / before - 1; }
  bool regressed() const { return longer() > noise; }
  /// Faster by so much that the reverse change would be a regression.
  bool improved() const { return before / now - 1 > noise; }
};

Change change_between(const Measured& before, const Measured& now);

/// Errors: invalid_data  `before` and `facts` are of different devices, or the machine of either was in a slow mode
void expect_comparable(const nlohmann::ordered_json& before, const std::string& origin,
                       const nlohmann::ordered_json& facts);
/// Errors: as expect_comparable; invalid_data  the documents have no benchmark in common
std::vector<Change> compare(const nlohmann::ordered_json& before, const std::string& origin,
                            const nlohmann::ordered_json& now);

}  // namespace moecl::bench
