#pragma once
// Results of one or more runs side by side, in the order of the report page.
#include <cstddef>
#include <string>
#include <vector>

#include "bench/case_name.hpp"
#include "bench/measured.hpp"

namespace moecl::bench {

/// What was measured in one process.
struct Run {
  std::string letter;              ///< "A", "B", ...
  std::string name;                ///< for people: a file, or a device
  nlohmann::ordered_json context;  ///< with "roof" (rates by name) and "slow_mode"
  std::vector<Measured> all;

  std::string fact(const char* key) const;  ///< empty where it is not known
  bool slow() const { return context.at("slow_mode") == true; }
};

/// An implementation in a run. The other series of a report are compared with the first.
struct Series {
  std::size_t run = 0;
  std::string implementation;
  std::string label;  ///< "", "B", "onednn" or "B onednn": enough to tell it from the others
};

/// A case, and its measurement in each series; null: it was not measured there.
struct ReportRow {
  CaseName name;
  std::vector<const Measured*> of_series;
};

/// Rows of one group, in natural order.
struct RowGroup {
  std::string title;
  std::vector<const ReportRow*> rows;
};

/// Groups of one operator, in natural order.
struct OperatorRows {
  std::string what;
  std::vector<RowGroup> groups;
};

class ReportRows {
 public:
  /// `runs` must outlive the object.
  explicit ReportRows(const std::vector<Run>& runs);
  ReportRows(const ReportRows&) = delete;
  ReportRows& operator=(const ReportRows&) = delete;

  const std::vector<Run>& runs() const { return *runs_; }
  const std::vector<Series>& series() const { return series_; }
  const std::vector<OperatorRows>& operators() const { return operators_; }

 private:
  const std::vector<Run>* runs_;
  std::vector<Series> series_;
  std::vector<ReportRow> rows_;
  std::vector<OperatorRows> operators_;
};

}  // namespace moecl::bench
