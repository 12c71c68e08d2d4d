#include "bench/report_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <numeric>
#include <optional>

#include "bench/baseline.hpp"
#include "bench/report_csv.hpp"
#include "bench/report_parts.hpp"
#include "bench/report_rows.hpp"
#include "bench/report_style.hpp"
#include "runtime/atomic_file.hpp"

namespace moecl::bench {
namespace {

constexpr const char* roof_share = "% of roof";
constexpr double above_roof = 110;          // percent; a rate exceeded by more does not bound the case
constexpr const char* kernel_time = "us:";  // prefix of the counters of kernel times

/// The least of `values` that is at least `enough`.
double round_limit(double enough, std::initializer_list<double> values) {
  for (const double value : values)
    if (value >= enough) return value;
  return enough;
}

// The summary.

/// Peaks that coincide share one line.
struct Peak {
  std::string names;
  double giga = 0;  ///< operations a second, in 1e9
  bool integers = false;
};

std::vector<Peak> peaks(const Run& run) {
  constexpr double same = 1.05;  // closer than a plot shows
  const nlohmann::ordered_json roof = run.context.at("roof");
  std::vector<Peak> all;
  for (const auto& [key, name, integers] :
       {std::tuple("f32_gflops", "f32", false), {"bf16_gflops", "bf16", false}, {"int8_gops", "int8", true}}) {
    const double giga = roof.value(key, 0.0);
    if (giga <= 0) continue;
    const auto near = std::find_if(all.begin(), all.end(), [&, rate = giga](const Peak& peak) {
      return std::max(peak.giga, rate) <= same * std::min(peak.giga, rate);
    });
    if (near == all.end())
      all.push_back({name, giga, integers});
    else
      near->names += fmt::format(", {}", name), near->integers |= integers, near->giga = std::max(near->giga, giga);
  }
  return all;
}

std::string peak_text(const Peak& peak) {
  const char* unit = peak.integers ? "OP/s" : "FLOP/s";
  return peak.giga < 1000 ? fmt::format("{:.0f} G{}", peak.giga, unit)
                          : fmt::format("{:.1f} T{}", peak.giga / 1e3, unit);
}

double bandwidth(const Run& run, const char* key) { return run.context.at("roof").value(key, 0.0); }

/// A link to the trace, for a page at `path`.
std::string trace_link(const Run& run, const std::string& path) {
  const std::string trace = run.fact("trace");
  if (trace.empty()) return "";
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  std::string link;
  for (const char c : std::filesystem::absolute(trace).lexically_proximate(folder).generic_string())
    link += c == '%' || c == '?' || c == '#' || c == ' ' ? fmt::format("%{:02X}", c) : std::string(1, c);
  return fmt::format(R"(<a href="{}">{}</a>)", escaped(link),
                     escaped(std::filesystem::path(trace).filename().string()));
}

/// Three cases of the run: the nearest to their roof, or the farthest from it.
std::string extremes(const char* title, const Run& run, bool nearest) {
  std::vector<const Measured*> cases;
  for (const Measured& one : run.all)
    if (const double share = one.counter(roof_share);
        share > 0 && share < above_roof && CaseName(one.name).implementation == "moecl")
      cases.push_back(&one);
  std::stable_sort(cases.begin(), cases.end(), [&](const Measured* a, const Measured* b) {
    return nearest ? a->counter(roof_share) > b->counter(roof_share) : a->counter(roof_share) < b->counter(roof_share);
  });
  if (cases.size() < 2) return "";
  std::string items;
  for (std::size_t i = 0; i < std::min<std::size_t>(cases.size() / 2, 3); ++i) {
    const Measured* one = cases[i];
    const CaseName name(one->name);
    items += fmt::format("<li><span>{} {} {}</span> <b>{}</b></li>", escaped(name.what), escaped(name.group),
                         escaped(name.row), percent_text(one->counter(roof_share)));
  }
  return fmt::format("<h4>{}</h4><ol>{}</ol>", title, items);
}

std::string card(const Run& run, const std::string& path, bool several) {
  std::string facts;
  const auto add = [&](const std::string& name, const std::string& html) {
    if (!html.empty()) facts += fmt::format("<dt>{}</dt><dd>{}</dd>", escaped(name), html);
  };
  const std::string device = run.fact("device");
  if (several) add("results", escaped(run.name));
  for (const auto& [key, name] : {std::pair("platform", "platform"),
                                  {"driver", "driver"},
                                  {"compute_units", "compute units"},
                                  {"moecl_commit", "commit"}})
    add(name, escaped(run.fact(key)));
  std::string date = run.fact("date");
  std::replace(date.begin(), date.end(), 'T', ' ');  // so that it may wrap
  add("date", escaped(date));
  for (const Peak& peak : peaks(run)) add("peak of " + peak.names, peak_text(peak));
  for (const auto& [key, name] : {std::pair("read_gb_per_s", "reads"), {"copy_gb_per_s", "copies"}})
    if (const double rate = bandwidth(run, key); rate > 0) add(name, fmt::format("{:.0f} GB/s", rate));
  add("trace", trace_link(run, path));
  return fmt::format("<article class=\"run\"><h3>{}{}</h3>{}<dl>{}</dl>{}{}</article>",
                     several ? run.letter + ": " : "", escaped(device.empty() ? "unknown device" : device),
                     run.slow() ? "<p class=\"warning\">The machine was in a slow mode: something shared its cores, so "
                                  "these times say little.</p>"
                                : "",
                     facts, extremes("Nearest its roof", run, true), extremes("Farthest from its roof", run, false));
}

/// The name of a series where its letter is not enough.
std::string long_name(const ReportRows& rows, std::size_t s) {
  const Series& series = rows.series()[s];
  const Run& run = rows.runs()[series.run];
  if (rows.runs().size() == 1) return series.label;
  return fmt::format("{}: {}, {}", series.label, run.name, run.fact("moecl_commit").substr(0, 12));
}

std::string series_legend(const ReportRows& rows) {
  std::vector<Key> keys;
  for (std::size_t s = 0; s < rows.series().size(); ++s) keys.push_back({long_name(rows, s), colour_of(s), -1});
  return keys.size() > 1 ? legend(keys) : "";
}

// Series against the first.

/// The measurements of a case in the first series and in another one.
struct Pair {
  const Measured *first, *other;

  double speed() const { return first->median() / other->median(); }
  Change changed() const { return change_between(*first, *other); }
};

std::optional<Pair> pair_of(const ReportRow& row, std::size_t s) {
  if (s == 0 || row.of_series[0] == nullptr || row.of_series[s] == nullptr) return std::nullopt;
  return Pair{row.of_series[0], row.of_series[s]};
}

std::string speed_text(const Pair& pair) {
  const Change changed = pair.changed();
  const bool better = changed.improved(), worse = changed.regressed();
  return fmt::format("<span class=\"{}\">{:.2f}&#215;&#160;{}</span>",
                     better  ? "good"
                     : worse ? "bad"
                             : "soft",
                     pair.speed(),
                     better  ? "&#9650;"
                     : worse ? "&#9660;"
                             : "=");
}

/// "B against A: 12 cases faster, ..."
std::string verdict(const ReportRows& rows, std::size_t s) {
  std::vector<std::pair<double, const ReportRow*>> speeds;
  std::size_t faster = 0, slower = 0;
  double logs = 0;
  for (const OperatorRows& one : rows.operators())
    for (const RowGroup& group : one.groups)
      for (const ReportRow* row : group.rows)
        if (const std::optional<Pair> pair = pair_of(*row, s)) {
          speeds.emplace_back(pair->speed(), row);
          logs += std::log(pair->speed());
          faster += pair->changed().improved() ? 1 : 0, slower += pair->changed().regressed() ? 1 : 0;
        }
  const std::string label = escaped(rows.series()[s].label), first = escaped(rows.series()[0].label);
  if (speeds.empty()) return fmt::format("<li>{} has no case in common with {}.</li>", label, first);
  const auto [least, most] = std::minmax_element(speeds.begin(), speeds.end());
  const auto named = [](const ReportRow& row) {
    return escaped(fmt::format("{} {} {}", row.name.what, row.name.group, row.name.row));
  };
  return fmt::format(
      "<li><b>{} against {}</b>: {:.2f} times as fast in the geometric mean of {} cases. <span class=\"good\">{} faster"
      "</span>, <span class=\"bad\">{} slower</span>, {} within the noise. Best: {:.2f} ({}); worst: {:.2f} ({}).</li>",
      label, first, std::exp(logs / static_cast<double>(speeds.size())), speeds.size(), faster, slower,
      speeds.size() - faster - slower, most->first, named(*most->second), least->first, named(*least->second));
}

std::string verdicts(const ReportRows& rows) {
  std::string items;
  for (std::size_t s = 1; s < rows.series().size(); ++s) items += verdict(rows, s);
  return items.empty() ? "" : "<ul class=\"findings\">" + items + "</ul>";
}

std::string comparison(const ReportRows& rows) {
  // The ends of the ratios between any repetition of the one and any of the other.
  const auto ends = [](const Pair& pair) {
    return std::pair(pair.first->seconds.front() / pair.other->seconds.back(),
                     pair.first->seconds.back() / pair.other->seconds.front());
  };
  double far = 1;
  for (const OperatorRows& one : rows.operators())
    for (const RowGroup& group : one.groups)
      for (const ReportRow* row : group.rows)
        for (std::size_t s = 1; s < row->of_series.size(); ++s)
          if (const std::optional<Pair> pair = pair_of(*row, s))
            far = std::max({far, 1 / ends(*pair).first, ends(*pair).second});
  const double limit = round_limit(far, {1.05, 1.1, 1.25, 1.5, 2, 3, 5, 10, 30, 100, 1000});
  const auto percent = [&](double speed) { return 50 + 50 * std::log(speed) / std::log(limit); };
  const std::vector<std::string> columns = {
      axis(fmt::format("&#247;{:g}", limit), "1", fmt::format("&#215;{:g}", limit)), column("speed"), column("median")};
  return by_operator(rows, [&](const RowGroup& group) {
    return table(rows, group, columns, [&](const ReportRow& row, std::size_t s) -> std::string {
      const std::optional<Pair> pair = pair_of(row, s);
      if (!pair) return "";
      const auto [from, to] = ends(*pair);
      return cell(Track()
                      .grid(0)
                      .grid(50)
                      .grid(100)
                      .range(percent(from), percent(to))
                      .dot(percent(pair->speed()), colour_of(s),
                           fmt::format("{:.3f}, {:.3f} to {:.3f}", pair->speed(), from, to))
                      .svg()) +
             cell(speed_text(*pair)) + cell(time_text(pair->other->median()));
    });
  });
}

// A series against its roof.

std::string against_roof(const ReportRows& rows) {
  const std::vector<std::string> columns = {axis("0", "50", "100 %"), column("of roof"), column("median")};
  return by_operator(rows, [&](const RowGroup& group) {
    return table(rows, group, columns, [&](const ReportRow& row, std::size_t s) -> std::string {
      const Measured& one = *row.of_series[s];
      const double share = one.counter(roof_share);
      if (share <= 0) return "";
      Track track = Track().grid(0).grid(25).grid(50).grid(75).grid(100).bar(0, share, colour_of(s),
                                                                             fmt::format("{:.1f} %", share));
      if (one.seconds.size() > 1)
        track.range(share * one.median() / one.seconds.back(), share * one.median() / one.seconds.front());
      return cell(track.svg()) + cell(percent_text(share)) + cell(time_text(one.median()));
    });
  });
}

/// Operations per second over operations per byte, below the machine's limits.
std::string roofline(const Run& run, bool several) {
  LogChart chart("operations a byte", "GFLOP/s");
  std::vector<LogChart::Line> points;
  double least = 0.1, most = 100;
  for (const Measured& one : run.all) {
    const double flops = one.counter("GFLOP/s"), bytes = one.counter("GB/s");
    if (flops <= 0 || bytes <= 0) continue;
    least = std::min(least, flops / bytes), most = std::max(most, flops / bytes);
    const std::string what = CaseName(one.name).what;
    auto line = std::find_if(points.begin(), points.end(), [&](const auto& l) { return l.label == what; });
    if (line == points.end()) line = points.insert(line, {what, 0, {}, true, false, 0});
    line->points.emplace_back(flops / bytes, flops);
  }
  std::sort(points.begin(), points.end(), [](const auto& a, const auto& b) { return natural_less(a.label, b.label); });
  std::vector<Key> keys;
  const double read = std::max(bandwidth(run, "read_gb_per_s"), bandwidth(run, "copy_gb_per_s"));
  if (read > 0)
    for (const Peak& peak : peaks(run)) {
      const double ridge = peak.giga / read;
      const int dashes = static_cast<int>(keys.size()) + 1;
      keys.push_back({fmt::format("{}: {}", peak.names, peak_text(peak)), no_colour, dashes});
      chart.add({keys.back().label,
                 no_colour,
                 {{least, least * read}, {ridge, peak.giga}, {std::max(most, ridge), peak.giga}},
                 false,
                 true,
                 dashes});
    }
  for (std::size_t i = 0; i < points.size(); ++i) {
    points[i].colour = colour_of(i);
    keys.push_back({points[i].label, points[i].colour, -1});
    chart.add(std::move(points[i]));
  }
  if (chart.empty()) return "";
  return fmt::format("<figure><figcaption><h4>{} {}</h4></figcaption>{}{}</figure>", several ? run.letter : "",
                     escaped(run.fact("device")), chart.svg(), legend(keys));
}

std::string rooflines(const ReportRows& rows) {
  std::string figures;
  for (const Run& run : rows.runs()) figures += roofline(run, rows.runs().size() > 1);
  return figures.empty() ? "" : "<div class=\"groups\">" + figures + "</div>";
}

// Kernels of a layer.

struct KernelShare {
  std::string name;
  double us = 0;
};

std::vector<KernelShare> kernels_of(const Measured& one) {
  std::vector<KernelShare> kernels;
  for (const auto& [name, us] : one.counters)
    if (name.rfind(kernel_time, 0) == 0) kernels.push_back({name.substr(std::string_view(kernel_time).size()), us});
  std::stable_sort(kernels.begin(), kernels.end(), [](const auto& a, const auto& b) { return a.us > b.us; });
  return kernels;
}

double total_us(const std::vector<KernelShare>& kernels) {
  return std::accumulate(kernels.begin(), kernels.end(), 0.0, [](double sum, const auto& one) { return sum + one.us; });
}

/// The kernels that take longest in total have colours of their own.
std::vector<Key> kernel_colours(const ReportRows& rows) {
  std::vector<KernelShare> all;
  for (const Run& run : rows.runs())
    for (const Measured& one : run.all)
      for (const KernelShare& kernel : kernels_of(one)) {
        const auto same = std::find_if(all.begin(), all.end(), [&](const auto& k) { return k.name == kernel.name; });
        if (same == all.end())
          all.push_back(kernel);
        else
          same->us += kernel.us;
      }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.us > b.us; });
  std::vector<Key> keys;
  for (std::size_t i = 0; i < std::min(all.size(), no_colour); ++i) keys.push_back({all[i].name, i, -1});
  if (all.size() > no_colour) keys.push_back({"others", no_colour, -1});
  return keys;
}

std::string kernel_counters(const ReportRows& rows, const RowGroup& group) {
  return counter_table(
      rows, group, "Counters of each kernel",
      {column("kernel"), column("us"), column("share"), column("calls"), column("GB/s"), column("GFLOP/s")},
      [](const Measured& one) {
        const std::vector<KernelShare> kernels = kernels_of(one);
        std::string lines;
        for (const auto& [name, us] : kernels)
          lines +=
              counter_row(name, {number_text(us), percent_text(100 * us / total_us(kernels)),
                                 number_text(one.counter("calls:" + name)), number_text(one.counter("GB/s:" + name)),
                                 number_text(one.counter("GFLOP/s:" + name))});
        return lines;
      });
}

std::string by_kernel(const ReportRows& rows) {
  const std::vector<Key> keys = kernel_colours(rows);
  const auto colour = [&](const std::string& kernel) {
    const auto key = std::find_if(keys.begin(), keys.end(), [&](const Key& k) { return k.label == kernel; });
    return key != keys.end() ? key->colour : no_colour;
  };
  const std::vector<std::string> columns = {axis("0", "50", "100 %"), column("sum")};
  const std::string html = by_operator(rows, [&](const RowGroup& group) {
    const std::string bars = table(rows, group, columns, [&](const ReportRow& row, std::size_t s) -> std::string {
      std::vector<KernelShare> kernels = kernels_of(*row.of_series[s]);
      if (kernels.empty()) return "";
      std::stable_sort(kernels.begin(), kernels.end(),
                       [&](const auto& a, const auto& b) { return colour(a.name) < colour(b.name); });
      Track track;
      const double total = total_us(kernels);
      double at = 0;
      for (const KernelShare& kernel : kernels) {
        const double end = at + 100 * kernel.us / total;
        track.bar(at, end, colour(kernel.name),
                  fmt::format("{}: {:.1f} us, {:.0f} %", kernel.name, kernel.us, end - at));
        at = end;
      }
      return cell(track.svg()) + cell(time_text(total / 1e6));
    });
    return bars.empty() ? "" : bars + kernel_counters(rows, group);
  });
  return html.empty() ? "" : legend(keys) + html;
}

// More of the same numbers.

/// Tokens per second over tokens, one plot per shape.
std::string scaling(const ReportRows& rows) {
  struct Plot {
    std::string shape;
    std::vector<std::string> schemes;
    std::vector<LogChart::Line> lines;
  };
  std::vector<Plot> plots;
  for (const OperatorRows& one : rows.operators()) {
    if (one.what != "layer") continue;
    for (const RowGroup& group : one.groups) {
      const std::size_t space = std::min(group.title.find(' '), group.title.size());
      const std::string shape = group.title.substr(0, space);
      if (plots.empty() || plots.back().shape != shape) plots.push_back({shape, {}, {}});
      Plot& plot = plots.back();
      plot.schemes.push_back(group.title.substr(std::min(space + 1, group.title.size())));
      for (std::size_t s = 0; s < rows.series().size(); ++s) {
        LogChart::Line line{plot.schemes.back() + " " + rows.series()[s].label,
                            colour_of(plot.schemes.size() - 1),
                            {},
                            true,
                            true,
                            static_cast<int>(s)};
        for (const ReportRow* row : group.rows)
          if (row->of_series[s] != nullptr)
            line.points.emplace_back(row->name.tokens, row->name.tokens / row->of_series[s]->median());
        if (!line.points.empty()) plot.lines.push_back(std::move(line));
      }
    }
  }
  std::string figures;
  for (const Plot& plot : plots) {
    LogChart chart("tokens", "tokens a second");
    std::vector<Key> keys;
    for (const LogChart::Line& line : plot.lines)
      chart.add(line), keys.push_back({line.label, line.colour, line.dashes});
    figures += fmt::format("<figure><figcaption><h4>{}</h4></figcaption>{}{}</figure>", escaped(plot.shape),
                           chart.svg(), legend(keys));
  }
  return figures.empty() ? "" : "<div class=\"groups\">" + figures + "</div>";
}

std::string repetitions(const ReportRows& rows) {
  double far = 0;
  for (const Run& run : rows.runs())
    for (const Measured& one : run.all)
      far = std::max({far, one.seconds.back() / one.median() - 1, 1 - one.seconds.front() / one.median()});
  const double limit = round_limit(far, {0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10});
  const std::vector<std::string> columns = {
      axis(fmt::format("&#8722;{:.0f} %", 100 * limit), "median", fmt::format("+{:.0f} %", 100 * limit)),
      column("spread"), column("n")};
  return by_operator(rows, [&](const RowGroup& group) {
    return table(rows, group, columns, [&](const ReportRow& row, std::size_t s) -> std::string {
      const Measured& one = *row.of_series[s];
      if (one.seconds.size() < 2) return "";
      Track track = Track().grid(0).grid(50).grid(100);
      for (const double seconds : one.seconds)
        track.dot(50 + 50 * (seconds / one.median() - 1) / limit, colour_of(s), time_text(seconds));
      return cell(track.svg()) + cell(fmt::format("{:.1f} %", 100 * one.spread())) +
             cell(std::to_string(one.seconds.size()));
    });
  });
}

/// The counters that have no column of their own.
std::string other_counters(const ReportRows& rows, const RowGroup& group) {
  return counter_table(rows, group, "Other counters", {column("counter"), column("value")}, [](const Measured& one) {
    std::string lines;
    for (const auto& [name, value] : one.counters)
      if (name != "GFLOP/s" && name != "GB/s" && name != roof_share && name.find(':') == std::string::npos)
        lines += counter_row(name, {number_text(value)});
    return lines;
  });
}

std::string numbers(const ReportRows& rows) {
  const std::vector<std::string> columns = {column("median"), column("spread"), column("GFLOP/s"), column("GB/s"),
                                            column("% roof")};
  const Cells cells = [](const ReportRow& row, std::size_t s) {
    const Measured& one = *row.of_series[s];
    return cell(time_text(one.median())) +
           cell(one.seconds.size() > 1 ? fmt::format("{:.1f} %", 100 * one.spread()) : "") +
           cell(number_text(one.counter("GFLOP/s"))) + cell(number_text(one.counter("GB/s"))) +
           cell(number_text(one.counter(roof_share)));
  };
  return by_operator(rows, [&](const RowGroup& group) {
    return table(rows, group, columns, cells, true) + other_counters(rows, group);
  });
}

/// The document's context. Google Benchmark's own programs write its roof and slow mode as text. Values of another type
/// are left out.
nlohmann::ordered_json parsed_context(const nlohmann::ordered_json& document) {
  using Json = nlohmann::ordered_json;
  Json context = document.value("context", Json::object());
  if (!context.is_object()) context = Json::object();
  const auto fact = [&](const char* name) {
    const Json found = context.value(name, Json());
    return found.is_string() ? Json::parse(found.get<std::string>(), nullptr, false) : found;
  };
  const Json roof = fact("roof"), slow_mode = fact("slow_mode");
  context["roof"] = Json::object();
  if (roof.is_object())
    for (const auto& [name, rate] : roof.items())
      if (rate.is_number()) context["roof"][name] = rate;
  context["slow_mode"] = slow_mode == true;
  return context;
}

struct Section {
  const char *id, *title, *about;
  std::string content;  ///< empty: the page has no such section
};

std::vector<Section> sections_of(const ReportRows& rows, const std::string& path) {
  std::string cards;
  for (const Run& run : rows.runs()) cards += card(run, path, rows.runs().size() > 1);
  const std::string keys = series_legend(rows);
  const auto with_keys = [&](const std::string& content) { return content.empty() ? "" : keys + content; };
  std::vector<Section> sections = {
      {"summary", "Summary",
       "What was measured on, what it does at best (its roof, measured in the same process), and which cases come near "
       "that.",
       verdicts(rows) + "<div class=\"groups\">" + cards + "</div>"},
      {"comparison", "Comparison",
       "Speed as a multiple of the first run's. The line is what the repetitions of both leave possible. &#9650; "
       "faster, &#9660; slower, = within the noise: 5 %, or the spread of the repetitions if that is more.",
       with_keys(comparison(rows))},
      {"roof", "Share of the roof",
       "The least time that the machine's rates allow, as a share of the time that was taken. The thin line is the "
       "spread of the repetitions. Above 100 % the device has faster units than those that were measured.",
       with_keys(against_roof(rows))},
      {"kernels", "Kernels of a layer", "Each kernel's share of one traced pass, and their sum.", by_kernel(rows)},
      {"roofline", "Roofline", "Dashed: what the machine can do. Each dot is a benchmark.", rooflines(rows)},
      {"scaling", "Scaling with the tokens", "Tokens of a call through the layer, and how many a second that makes.",
       scaling(rows)},
      {"repetitions", "Repetitions", "Each dot is one repetition, as its distance from the median.",
       with_keys(repetitions(rows))},
      {"numbers", "Numbers", "Medians of the repetitions.", with_keys(numbers(rows))}};
  sections.erase(
      std::remove_if(sections.begin(), sections.end(), [](const Section& one) { return one.content.empty(); }),
      sections.end());
  return sections;
}

}  // namespace

void write_report(const std::string& path, const std::vector<NamedResults>& results) {
  std::vector<Run> runs;
  for (const NamedResults& one : results)
    runs.push_back({std::string(1, static_cast<char>('A' + runs.size() % 26)),
                    std::filesystem::path(one.name).stem().string(), parsed_context(one.document),
                    measured(one.document, one.name)});
  const std::vector<Section> sections = sections_of(ReportRows(runs), path);
  std::string page = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\"/><title>moecl bench: {}</title><style>{}</style></head>\n"
      "<body><header><h1>moecl bench</h1><nav>",
      escaped(runs.empty() ? "" : runs.front().fact("device")), report_style);
  for (const Section& one : sections) page += fmt::format("<a href=\"#{}\">{}</a> ", one.id, one.title);
  page += fmt::format("<a download=\"moecl-bench.csv\" href=\"{}\">CSV</a></nav></header>\n<main>",
                      data_url("text/csv", csv(runs)));
  for (const Section& one : sections)
    page +=
        fmt::format("<section id=\"{}\"><h2>{}</h2><p>{}</p>{}</section>\n", one.id, one.title, one.about, one.content);
  page += "</main></body></html>\n";
  AtomicFile file(path);
  file.write(page.data(), page.size());
  file.commit();
}

}  // namespace moecl::bench
