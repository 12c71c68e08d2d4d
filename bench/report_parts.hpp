#pragma once
// Parts of the report page, as HTML.
#include <functional>
#include <string>
#include <vector>

#include "bench/chart.hpp"
#include "bench/report_rows.hpp"

namespace moecl::bench {

std::string cell(const std::string& html);

/// Three significant digits, or all before the point; empty: 0
std::string number_text(double value);
/// "0.3 %", "64 %"
std::string percent_text(double percent);

/// The head of a column.
std::string column(const std::string& html);
/// The head of a column of Tracks.
std::string axis(const std::string& left, const std::string& middle, const std::string& right);

/// The colour of a series, among those of chart.hpp.
std::size_t colour_of(std::size_t series);

/// The cells of a measured case, after its name and its series; empty: the case is left out.
using Cells = std::function<std::string(const ReportRow&, std::size_t series)>;
/// A row for each series of each case; empty without any. Long names, and names with the kernels' variants, have a row
/// of their own above.
/// @param columns  heads of the cells: each a column() or an axis()
std::string table(const ReportRows& rows, const RowGroup& group, const std::vector<std::string>& columns,
                  const Cells& cells, bool with_variants = false);

/// A row of counter_table.
std::string counter_row(const std::string& name, const std::vector<std::string>& values);
/// A folded table. Below each case of each series are its lines: rows of counter_row, or nothing. Empty without any.
std::string counter_table(const ReportRows& rows, const RowGroup& group, const char* title,
                          const std::vector<std::string>& columns,
                          const std::function<std::string(const Measured&)>& lines);

/// A fold for each operator, with what `content` returns for each group; empty without any. Only the fold of the layer
/// is open, or else the first; all are open where there are few cases.
std::string by_operator(const ReportRows& rows, const std::function<std::string(const RowGroup&)>& content);

}  // namespace moecl::bench
