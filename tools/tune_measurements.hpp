#pragma once
// What `moecl tune` measures, choice by choice, on the device of bench::stream().
#include <nlohmann/json.hpp>

#include <functional>
#include <string>
#include <vector>

#include "tools/deadline.hpp"

namespace moecl::cli {

/// A choice, or several that are measured together.
struct Measurement {
  std::string name;   ///< "combine/lanes"
  const char* table;  ///< that it stands in: "operators" or "dense_backend"
  /// Adds what was found to the device's entry of the table, and says it in a line for people. An empty line: there was
  /// no time, and nothing was added.
  std::function<std::string(Deadline& deadline, nlohmann::ordered_json& entry)> run;
};

/// All of them, those that matter most first. Registers the benchmarks that they run: call it once.
std::vector<Measurement> tuning_measurements();

}  // namespace moecl::cli
