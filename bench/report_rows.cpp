#include "bench/report_rows.hpp"

#include <algorithm>

namespace moecl::bench {
namespace {

/// By operator, then group, then row.
bool stands_before(const ReportRow& a, const ReportRow& b) {
  for (const auto part : {&CaseName::what, &CaseName::group, &CaseName::row})
    if (a.name.*part != b.name.*part) return natural_less(a.name.*part, b.name.*part);
  return false;
}

}  // namespace

std::string Run::fact(const char* key) const {
  const auto found = context.find(key);
  if (found == context.end()) return "";
  return found->is_string() ? found->get<std::string>() : found->dump();
}

ReportRows::ReportRows(const std::vector<Run>& runs) : runs_(&runs) {
  // moecl comes first: others are compared with it.
  for (std::size_t run = 0; run < runs.size(); ++run) {
    std::vector<std::string> implementations;
    for (const Measured& one : runs[run].all) {
      const std::string implementation = CaseName(one.name).implementation;
      if (std::find(implementations.begin(), implementations.end(), implementation) == implementations.end())
        implementations.push_back(implementation);
    }
    std::stable_partition(implementations.begin(), implementations.end(), [](const auto& i) { return i == "moecl"; });
    for (std::string& implementation : implementations) series_.push_back({run, std::move(implementation), ""});
  }
  const bool several = std::any_of(series_.begin(), series_.end(), [&](const Series& one) {
    return one.implementation != series_.front().implementation;
  });
  for (Series& one : series_) {
    if (runs.size() > 1) one.label = runs[one.run].letter;
    if (several) one.label += (one.label.empty() ? "" : " ") + one.implementation;
  }

  for (std::size_t s = 0; s < series_.size(); ++s)
    for (const Measured& one : runs[series_[s].run].all) {
      ReportRow row{CaseName(one.name), {}};
      if (row.name.implementation != series_[s].implementation) continue;
      const auto place = std::lower_bound(rows_.begin(), rows_.end(), row, stands_before);
      const bool there = place != rows_.end() && !stands_before(row, *place);
      ReportRow& kept = there ? *place : *rows_.insert(place, std::move(row));
      kept.of_series.resize(series_.size());
      kept.of_series[s] = &one;
    }
  for (const ReportRow& row : rows_) {
    if (operators_.empty() || operators_.back().what != row.name.what) operators_.push_back({row.name.what, {}});
    std::vector<RowGroup>& groups = operators_.back().groups;
    if (groups.empty() || groups.back().title != row.name.group) groups.push_back({row.name.group, {}});
    groups.back().rows.push_back(&row);
  }
}

}  // namespace moecl::bench
