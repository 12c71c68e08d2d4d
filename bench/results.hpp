#pragma once
// What benchmarks gave: rows as they finish, and Google Benchmark's JSON document, which everything else reads.
#include <moecl/device.hpp>

#include <benchmark/benchmark.h>
#include <nlohmann/json.hpp>

#include <array>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "bench/measured.hpp"

namespace moecl::bench {

/// Platform, device, driver and commit.
nlohmann::ordered_json device_facts(const Device& device);
/// The same of the device of all benchmarks, and the roof with whether the machine is in a slow mode.
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
  /// What a run counted, beside its time: in so many.
  struct Column {
    const char *title, *counter;
    double unit;
  };
  using Columns = std::array<Column, 3>;
  static constexpr Columns of_operators = {
      {{"GFLOP/s", "GFLOP/s", 1}, {"GB/s", "GB/s", 1}, {"% roof", "% of roof", 1}}};
  static constexpr Columns of_ranks = {
      {{"host us", "host us", 1}, {"kB", "bytes exchanged", 1e3}, {"nodes", "bytes between nodes", 1e3}}};

  /// @param rows         where to, after the heading; nullptr: nowhere
  /// @param interrupted  asked after each benchmark, whose runs are kept; no other one begins where it says so
  /// @param before_rows  called before something goes to `rows`
  explicit Collector(
      std::FILE* rows, std::string heading = {}, std::function<bool()> interrupted = {},
      std::function<void()> before_rows = [] {}, const Columns& columns = of_operators)
      : rows_(rows),
        heading_(std::move(heading)),
        interrupted_(std::move(interrupted)),
        before_rows_(std::move(before_rows)),
        columns_(columns) {}
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
  Columns columns_;
  std::vector<std::vector<Run>> groups_;
  bool failed_ = false;
};

}  // namespace moecl::bench
