#pragma once
// The measurements in a JSON document of Google Benchmark.
#include <nlohmann/json.hpp>

#include <map>
#include <string>
#include <vector>

namespace moecl::bench {

/// One benchmark of a document.
struct Measured {
  std::string name, label;
  std::vector<double> seconds;             ///< of its repetitions, ascending
  std::map<std::string, double> counters;  ///< of the repetition that took the median

  /// 0 if the benchmark has no such counter.
  double counter(const std::string& of) const;

  double median() const { return seconds[seconds.size() / 2]; }
  /// The largest time less the smallest, over the median.
  double spread() const { return (seconds.back() - seconds.front()) / median(); }
};

/// "1.23 ms"
std::string time_text(double seconds);

/// The benchmarks that gave a time, in order. Errors: invalid_data  not such a document; the message names it `origin`
std::vector<Measured> measured(const nlohmann::ordered_json& document, const std::string& origin);

}  // namespace moecl::bench
