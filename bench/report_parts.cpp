#include "bench/report_parts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace moecl::bench {
namespace {

std::string table_of(const std::vector<std::string>& columns, const std::string& body) {
  return fmt::format("<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>", fmt::join(columns, ""), body);
}

std::string title_row(std::size_t columns, const std::string& html) {
  return fmt::format("<tr class=\"first\"><th colspan=\"{}\" scope=\"rowgroup\">{}</th></tr>", columns, html);
}

std::string series_head(const ReportRows& rows, std::size_t s) {
  return fmt::format(
      R"(<th scope="row" class="series"><svg class="key" aria-hidden="true"><rect class="c{}" width="100%" height="100%"/></svg>{}</th>)",
      colour_of(s), escaped(rows.series()[s].label));
}

}  // namespace

std::string cell(const std::string& html) { return "<td>" + html + "</td>"; }

std::string number_text(double value) {
  return value == 0 ? "" : value < 100 ? fmt::format("{:.3g}", value) : fmt::format("{:.0f}", value);
}

std::string percent_text(double percent) { return fmt::format("{:.{}f} %", percent, percent < 10 ? 1 : 0); }

std::string column(const std::string& html) { return "<th scope=\"col\">" + html + "</th>"; }

std::string axis(const std::string& left, const std::string& middle, const std::string& right) {
  return fmt::format(R"(<th scope="col" class="axis"><div><span>{}</span><span>{}</span><span>{}</span></div></th>)",
                     left, middle, right);
}

std::size_t colour_of(std::size_t series) { return std::min(series, no_colour); }

std::string table(const ReportRows& rows, const RowGroup& group, const std::vector<std::string>& columns,
                  const Cells& cells, bool with_variants) {
  const bool several = rows.series().size() > 1;
  const auto has_long_name = [](const ReportRow* row) { return row->name.row.size() > 8; };
  const bool names_above = with_variants || std::any_of(group.rows.begin(), group.rows.end(), has_long_name);
  std::vector<std::string> heads;
  if (!names_above) heads.push_back(column("case"));
  if (several) heads.push_back(column("run"));
  heads.insert(heads.end(), columns.begin(), columns.end());
  std::string body;
  for (const ReportRow* row : group.rows) {
    std::vector<std::string> lines, variants;
    for (std::size_t s = 0; s < row->of_series.size(); ++s) {
      const std::string line = row->of_series[s] != nullptr ? cells(*row, s) : "";
      if (line.empty()) continue;
      lines.push_back((several ? series_head(rows, s) : "") + line);
      const std::string& variant = row->of_series[s]->label;
      if (with_variants && !variant.empty() && std::find(variants.begin(), variants.end(), variant) == variants.end())
        variants.push_back(variant);
    }
    if (lines.empty()) continue;
    std::string name = escaped(row->name.row);
    for (const std::string& variant : variants) name += " <small>" + escaped(variant) + "</small>";
    if (names_above)
      body += title_row(heads.size(), name);
    else
      lines.front().insert(0, fmt::format("<th scope=\"row\" rowspan=\"{}\">{}</th>", lines.size(), name));
    for (std::size_t i = 0; i < lines.size(); ++i)
      body += fmt::format("<tr{}>{}</tr>", i == 0 && !names_above ? " class=\"first\"" : "", lines[i]);
  }
  return body.empty() ? "" : table_of(heads, body);
}

std::string counter_row(const std::string& name, const std::vector<std::string>& values) {
  std::string cells;
  for (const std::string& value : values) cells += cell(value);
  return fmt::format("<tr><th scope=\"row\">{}</th>{}</tr>", escaped(name), cells);
}

std::string counter_table(const ReportRows& rows, const RowGroup& group, const char* title,
                          const std::vector<std::string>& columns,
                          const std::function<std::string(const Measured&)>& lines) {
  std::string body;
  for (const ReportRow* row : group.rows)
    for (std::size_t s = 0; s < row->of_series.size(); ++s) {
      const std::string found = row->of_series[s] != nullptr ? lines(*row->of_series[s]) : "";
      if (!found.empty())
        body += title_row(columns.size(), escaped(row->name.row + " " + rows.series()[s].label)) + found;
    }
  if (body.empty()) return "";
  return fmt::format("<details><summary>{}</summary>{}</details>", title, table_of(columns, body));
}

std::string by_operator(const ReportRows& rows, const std::function<std::string(const RowGroup&)>& content) {
  std::vector<std::pair<std::string, std::string>> folds;
  std::size_t cases = 0;
  for (const OperatorRows& one : rows.operators()) {
    std::string groups;
    for (const RowGroup& group : one.groups)
      if (const std::string html = content(group); !html.empty()) {
        groups += fmt::format("<div class=\"group\">{}{}</div>",
                              group.title.empty() ? "" : "<h4>" + escaped(group.title) + "</h4>", html);
        cases += group.rows.size();
      }
    if (!groups.empty()) folds.emplace_back(one.what, "<div class=\"groups\">" + groups + "</div>");
  }
  const bool has_layer =
      std::any_of(folds.begin(), folds.end(), [](const auto& fold) { return fold.first == "layer"; });
  std::string html;
  for (const auto& [what, groups] : folds)
    html += fmt::format("<details{}><summary><h3>{}</h3></summary>{}</details>\n",
                        cases <= 48 || what == (has_layer ? "layer" : folds.front().first) ? " open=\"open\"" : "",
                        escaped(what), groups);
  return html;
}

}  // namespace moecl::bench
