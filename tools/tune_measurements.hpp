#pragma once
// The measurements of `moecl tune`, choice by choice, on the device of bench::stream().
#include <nlohmann/json.hpp>

#include <functional>
#include <string>
#include <vector>

#include "tools/deadline.hpp"

namespace moecl::cli {

/// Measures a choice, or several choices together.
struct Measurement {
  std::string name;   ///< "combine/lanes"
  const char* table;  ///< the table of the choice: "operators" or "dense_backend"
  /// Adds the result to the device's entry of the table. Returns a line about it for people; an empty line: the time
  /// was over, and nothing was added.
  std::function<std::string(Deadline& deadline, nlohmann::ordered_json& entry)> run;
};

/// All measurements, the most important first. Registers the benchmarks that they run: call it once.
std::vector<Measurement> tuning_measurements();

}  // namespace moecl::cli
