#include "bench/results.hpp"

#include <moecl/moecl.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "bench/device_time.hpp"
#include "runtime/check.hpp"
#include "tools/printable.hpp"
#include "tools/table.hpp"
#include "tools/terminal.hpp"

namespace moecl::bench {

namespace {

/// Of a benchmark in a row, which the numbers make one of 80 columns.
constexpr std::size_t name_width = 44;

double seconds_of(const benchmark::BenchmarkReporter::Run& run) {
  return run.GetAdjustedRealTime() / benchmark::GetTimeUnitMultiplier(run.time_unit);
}

/// Why a run failed, if it did. Google Benchmark 1.8 renamed the fields.
template <class Run>
std::optional<std::string> error_of(const Run& run) {
  if constexpr (requires { run.error_occurred; })
    return run.error_occurred ? std::optional<std::string>(run.error_message) : std::nullopt;
  else
    return run.skipped != decltype(run.skipped){} ? std::optional<std::string>(run.skip_message) : std::nullopt;
}

}  // namespace

nlohmann::ordered_json device_facts(const Device& device) {
  const DeviceCaps& caps = device.caps;
  return {{"platform", caps.platform_name},
          {"device", caps.name},
          {"driver", caps.driver_version},
          {"compute_units", caps.compute_units},
          {"moecl_commit", moecl_commit()}};
}

nlohmann::ordered_json context_facts() {
  const Roof& best = roof();
  nlohmann::ordered_json rates = {{"f32_gflops", best.f32 / 1e9}};
  const auto add = [&](const char* name, double rate) {
    if (rate > 0) rates[name] = rate / 1e9;  // else it was not measured on such a device
  };
  add("f32_one_unit_gflops", best.f32_one_unit);
  add("bf16_gflops", best.bf16);
  add("int8_gops", best.int8);
  add("read_gb_per_s", best.read);
  add("copy_gb_per_s", best.copy);
  nlohmann::ordered_json facts = device_facts(*stream().device);
  facts["roof"] = rates;
  facts["slow_mode"] = best.slow_mode;
  return facts;
}

std::string heading(const nlohmann::ordered_json& facts) {
  const auto text = [&](const char* name) { return cli::printable(facts[name].get<std::string>()); };
  const std::string device = fmt::format("{} / {} (driver {}), commit {}", text("platform"), text("device"),
                                         text("driver"), text("moecl_commit"));
  std::string second = "roof:", lines;
  if (facts.contains("ranks"))
    second = fmt::format("{} ranks as {}, by {}", facts["ranks"].get<int>(), text("launch"), text("transport"));
  else
    for (const auto& [name, rate] : facts["roof"].items())
      second += fmt::format(" {} {:.1f}", name, rate.get<double>());
  for (const std::string& whole : {device, second})
    for (const std::string& line : cli::wrapped(whole, cli::line_width)) lines += line + "\n";
  return lines + "\n";
}

std::string slow_note(const nlohmann::ordered_json& facts) {
  if (!facts.contains("slow_mode") || facts["slow_mode"] != true) return {};
  return "\nSLOW MODE: all compute units together are far from as many times one, so\n"
         "something shares the cores; these times say little\n";
}

bool Collector::ReportContext(const Context&) {
  if (rows_ != nullptr)
    fmt::print(rows_, "{}{:<{}} {:>9} {:>9} {:>8} {:>6}\n", heading_, "benchmark  variant", name_width, "time",
               columns_[0].title, columns_[1].title, columns_[2].title);
  return true;
}

void Collector::ReportRuns(const std::vector<Run>& runs) {
  std::vector<Run>& kept = groups_.emplace_back(runs);
  std::vector<const Run*> timed;
  before_rows_();
  for (Run& run : kept) {
    // How it was run is said beside the name, not in it.
    run.run_name.min_time.clear(), run.run_name.iterations.clear(), run.run_name.repetitions.clear();
    run.run_name.time_type.clear();
    const std::optional<std::string> error = error_of(run);
    failed_ = failed_ || error;
    if (error && rows_ != nullptr) fmt::print(rows_, "{}  {}\n", run.benchmark_name(), *error);
    if (!error && run.run_type == Run::RT_Iteration) timed.push_back(&run);
  }
  std::sort(timed.begin(), timed.end(), [](const Run* a, const Run* b) { return seconds_of(*a) < seconds_of(*b); });
  if (!timed.empty() && rows_ != nullptr) print_row(*timed[timed.size() / 2]);
  if (interrupted_ && interrupted_()) throw Interrupted();
}

void Collector::print_row(const Run& run) const {
  const auto counter = [&](const Column& of) {
    const auto found = run.counters.find(of.counter);
    return found != run.counters.end() ? fmt::format("{:.1f}", found->second.value / of.unit) : std::string("-");
  };
  std::string name = run.benchmark_name();
  if (!run.report_label.empty() && name.size() + 2 + run.report_label.size() > name_width) {
    fmt::print(rows_, "{}\n", name);
    name.clear();
  }
  if (!run.report_label.empty()) name += "  " + run.report_label;
  fmt::print(rows_, "{:<{}} {:>9} {:>9} {:>8} {:>6}\n", name, name_width, time_text(seconds_of(run)),
             counter(columns_[0]), counter(columns_[1]), counter(columns_[2]));
  std::fflush(rows_);
}

nlohmann::ordered_json Collector::document(const nlohmann::ordered_json& facts) const {
  std::ostringstream text;
  benchmark::JSONReporter json;
  json.SetOutputStream(&text);
  json.SetErrorStream(&text);
  json.ReportContext(Context());
  for (const std::vector<Run>& runs : groups_) json.ReportRuns(runs);
  json.Finalize();
  nlohmann::ordered_json document = nlohmann::ordered_json::parse(text.str());
  document["context"].update(facts);
  return document;
}

}  // namespace moecl::bench
