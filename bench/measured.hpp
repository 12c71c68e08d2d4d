#pragma once
// What Google Benchmark's JSON document says was measured.
#include <nlohmann/json.hpp>

#include <map>
#include <string>
#include <vector>

namespace moecl::bench {

/// One benchmark of a document.
struct Measured {
  std::string name, label;
  std::vector<double> seconds;             ///< of its repetitions, ascending
  std::map<std::string, double> counters;  ///< of the last one

  double median() const { return seconds[seconds.size() / 2]; }
  /// Largest less smallest, over the median.
  double spread() const { return (seconds.back() - seconds.front()) / median(); }
};

/// Those that gave a time, in order. Errors: invalid_data  not such a document; `origin` names it
std::vector<Measured> measured(const nlohmann::ordered_json& document, const std::string& origin);

}  // namespace moecl::bench
