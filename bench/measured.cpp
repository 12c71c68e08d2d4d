#include "bench/measured.hpp"

#include <algorithm>

#include "runtime/check.hpp"

namespace moecl::bench {

std::vector<Measured> measured(const nlohmann::ordered_json& document, const std::string& origin) {
  std::vector<Measured> all;
  try {
    for (const auto& run : document.at("benchmarks")) {
      if (run.at("run_type") != "iteration" || run.value("error_occurred", false)) continue;
      const auto name = run.at("name").get<std::string>(), unit = run.at("time_unit").get<std::string>();
      if (all.empty() || all.back().name != name) all.push_back({name, run.value("label", ""), {}, {}});
      const double scale = unit == "ns" ? 1e-9 : unit == "us" ? 1e-6 : unit == "ms" ? 1e-3 : 1;
      all.back().seconds.push_back(run.at("real_time").get<double>() * scale);
      for (const auto& [key, value] : run.items())
        if (value.is_number_float()) all.back().counters[key] = value;
    }
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorCode::invalid_data, "{}: not Google Benchmark's JSON: {}", origin, error.what());
  }
  for (Measured& one : all) std::sort(one.seconds.begin(), one.seconds.end());
  return all;
}

}  // namespace moecl::bench
