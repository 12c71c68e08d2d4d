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
  std::map<std::string, double> counters;  ///< of the repetition that took the median

  /// 0 without it.
  double counter(const std::string& of) const;

  double median() const { return seconds[seconds.size() / 2]; }
  /// Largest less smallest, over the median.
  double spread() const { return (seconds.back() - seconds.front()) / median(); }
};

/// "1.23 ms"
std::string time_text(double seconds);

/// Those that gave a time, in order. Errors: invalid_data  not such a document; `origin` names it
std::vector<Measured> measured(const nlohmann::ordered_json& document, const std::string& origin);

}  // namespace moecl::bench
