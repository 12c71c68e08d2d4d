#pragma once
// What benchmarks gave: rows as they finish, and Google Benchmark's JSON document, which everything else reads.
#include <benchmark/benchmark.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "bench/measured.hpp"

namespace moecl::bench {

/// Platform, device, driver, commit, and the roof with whether the machine is in a slow mode.
nlohmann::ordered_json context_facts();

/// The same in a few lines for people.
std::string heading(const nlohmann::ordered_json& facts);
/// A line that says that the machine was in a slow mode; empty when it was not.
std::string slow_note(const nlohmann::ordered_json& facts);

/// Thrown out of the benchmarks that run, to the one who runs them.
struct Interrupted {};

/// Keeps every run and prints the median repetition of each benchmark as it finishes.
class Collector final : public benchmark::BenchmarkReporter {
 public:
  /// @param rows         where to, after the heading; nullptr: nowhere
  /// @param interrupted  asked after each benchmark, whose runs are kept; no other one begins where it says so
  /// @param before_rows  called before something goes to `rows`
  explicit Collector(
      std::FILE* rows, std::string heading = {}, std::function<bool()> interrupted = {},
      std::function<void()> before_rows = [] {})
      : rows_(rows),
        heading_(std::move(heading)),
        interrupted_(std::move(interrupted)),
        before_rows_(std::move(before_rows)) {}
  bool ReportContext(const Context& context) override;
  /// Errors: Interrupted
  void ReportRuns(const std::vector<Run>& runs) override;
  /// Google Benchmark's document, its context with `facts` added.
  nlohmann::ordered_json document(const nlohmann::ordered_json& facts) const;
  bool failed() const { return failed_; }
  std::size_t finished() const { return groups_.size(); }

 private:
  void print_row(const Run& run) const;

  std::FILE* rows_;
  std::string heading_;
  std::function<bool()> interrupted_;
  std::function<void()> before_rows_;
  std::vector<std::vector<Run>> groups_;
  bool failed_ = false;
};

}  // namespace moecl::bench
