#include "bench/measured.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/check.hpp"

namespace moecl::bench {

double Measured::counter(const std::string& of) const {
  const auto found = counters.find(of);
  return found != counters.end() ? found->second : 0;
}

std::string time_text(double seconds) {
  return seconds < 1e-3 ? fmt::format("{:.2f} us", seconds * 1e6)
         : seconds < 1  ? fmt::format("{:.2f} ms", seconds * 1e3)
                        : fmt::format("{:.2f} s", seconds);
}

std::vector<Measured> measured(const nlohmann::ordered_json& document, const std::string& origin) {
  using Repetition = std::pair<double, std::map<std::string, double>>;  // seconds and counters
  std::vector<Measured> all;
  std::vector<std::vector<Repetition>> repetitions;
  try {
    for (const auto& run : document.at("benchmarks")) {
      if (run.at("run_type") != "iteration" || run.value("error_occurred", false)) continue;
      const auto name = run.at("name").get<std::string>(), unit = run.at("time_unit").get<std::string>();
      if (all.empty() || all.back().name != name) {
        all.push_back({name, run.value("label", ""), {}, {}});
        repetitions.emplace_back();
      }
      const double scale = unit == "ns" ? 1e-9 : unit == "us" ? 1e-6 : unit == "ms" ? 1e-3 : 1;
      auto& counters =
          repetitions.back().emplace_back(run.at("real_time").get<double>() * scale, Repetition::second_type()).second;
      for (const auto& [key, value] : run.items())
        if (value.is_number_float() && key != "real_time" && key != "cpu_time") counters[key] = value;
    }
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorCode::invalid_data, "{}: not Google Benchmark's JSON: {}", origin, error.what());
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::vector<Repetition>& sorted = repetitions[i];
    std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    all[i].counters = std::move(sorted[sorted.size() / 2].second);
    for (const Repetition& one : sorted) all[i].seconds.push_back(one.first);
  }
  return all;
}

}  // namespace moecl::bench
