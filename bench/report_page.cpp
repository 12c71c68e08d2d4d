#include "bench/report_page.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "bench/chart.hpp"
#include "runtime/atomic_file.hpp"

namespace moecl::bench {
namespace {

constexpr const char* style = R"(
body { font: 16px/1.45 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; color: #1b1b1b; background: #fff }
h1 { font-size: 1.5rem } h2 { font-size: 1.2rem; margin-top: 2rem; break-after: avoid }
svg { width: 100%; height: auto; break-inside: avoid } svg text { font: 13px system-ui, sans-serif; fill: #1b1b1b }
.grid { stroke: #ddd } .warning { border: 2px solid #b3282d; padding: .5rem }
.key { display: inline-block; margin-right: 1rem } .key svg { width: .8rem; margin-right: .3rem }
.scroll { overflow-x: auto } table { border-collapse: collapse; font-size: .85rem }
td, th { border-bottom: 1px solid #ddd; padding: .2rem .6rem; text-align: left } td.number { text-align: right }
@media print { body { max-width: none; font-size: 11pt } .scroll { overflow: visible } }
)";

/// "layer/qwen3-30b-a3b/bf16/T:16/moecl" in its parts; other benchmarks have no tokens.
struct ModelName {
  std::string what, model, implementation;  ///< model: shape and scheme
  double tokens = 0;

  explicit ModelName(const std::string& name) {
    std::vector<std::string> parts;
    for (std::size_t begin = 0; begin <= name.size();) {
      const std::size_t slash = std::min(name.find('/', begin), name.size());
      parts.push_back(name.substr(begin, slash - begin));
      begin = slash + 1;
    }
    if (parts.size() != 5 || parts[3].rfind("T:", 0) != 0) return;
    what = parts[0], model = parts[1] + " " + parts[2], implementation = parts[4];
    tokens = std::stod(parts[3].substr(2));
  }
  std::string product() const { return fmt::format("{} {} T:{:.0f}", what, model, tokens); }
};

double counter(const Measured& one, const char* name) {
  const auto found = one.counters.find(name);
  return found != one.counters.end() ? found->second : 0;
}

/// Hands out the colours in the order in which names come.
class Palette {
 public:
  std::string of(const std::string& name) {
    const auto found = std::find_if(keys_.begin(), keys_.end(), [&](const auto& key) { return key.first == name; });
    if (found != keys_.end()) return found->second;
    return keys_.emplace_back(name, colour(keys_.size())).second;
  }
  std::string legend() const { return bench::legend(keys_); }

 private:
  std::vector<std::pair<std::string, std::string>> keys_;
};

std::string section(const char* title, const std::string& about, const std::string& content) {
  return fmt::format("<section><h2>{}</h2><p>{}</p>{}</section>\n", title, about, content);
}

std::string device(const nlohmann::ordered_json& context) {
  std::string rows;
  const auto add = [&](const std::string& name, const nlohmann::ordered_json& value) {
    rows += fmt::format("<tr><th>{}</th><td>{}</td></tr>", escaped(name),
                        escaped(value.is_string()         ? value.get<std::string>()
                                : value.is_number_float() ? fmt::format("{:.1f}", value.get<double>())
                                                          : value.dump()));
  };
  for (const char* name : {"platform", "device", "driver", "compute_units", "moecl_commit", "date", "slow_mode"})
    if (context.contains(name)) add(name, context[name]);
  if (context.contains("roof"))
    for (const auto& [name, value] : context["roof"].items()) add("roof: " + name, value);
  const bool slow = context.value("slow_mode", false);
  return fmt::format("{}<div class=\"scroll\"><table>{}</table></div>",
                     slow ? "<p class=\"warning\">The machine was in a slow mode: something shared its cores, so these "
                            "times say little.</p>"
                          : "",
                     rows);
}

/// Operations a second over operations a byte, below the ceilings that were measured.
std::string roofline(const nlohmann::ordered_json& context, const std::vector<Measured>& all) {
  LogChart chart("operations for each byte", "GFLOP/s");
  Palette colours;
  double least = 0.1, most = 100;
  std::map<std::string, LogChart::Line> points;
  for (const Measured& one : all) {
    const double flops = counter(one, "GFLOP/s"), bytes = counter(one, "GB/s");
    if (flops <= 0 || bytes <= 0) continue;
    least = std::min(least, flops / bytes), most = std::max(most, flops / bytes);
    const std::string what = one.name.substr(0, one.name.find('/'));
    LogChart::Line& line = points[what];
    line.label = what, line.colour = colours.of(what), line.joined = false;
    line.points.emplace_back(flops / bytes, flops);
  }
  const nlohmann::ordered_json roof = context.value("roof", nlohmann::ordered_json::object());
  const double read = std::max(roof.value("read_gb_per_s", 0.0), roof.value("copy_gb_per_s", 0.0));
  for (const char* peak : {"f32_gflops", "bf16_gflops", "int8_gops"})
    if (const double rate = roof.value(peak, 0.0); rate > 0 && read > 0)
      chart.add({fmt::format("{} {:.0f}", peak, rate),
                 colours.of(peak),
                 {{least, least * read}, {rate / read, rate}, {std::max(most, rate / read), rate}},
                 false,
                 true});
  for (auto& [what, line] : points) chart.add(std::move(line));
  return chart.empty() ? "" : colours.legend() + chart.svg();
}

std::string against_roof(const std::vector<Measured>& all) {
  Palette colours;
  std::vector<std::pair<std::string, Bar>> bars;
  for (const Measured& one : all) {
    const ModelName name(one.name);
    const double share = counter(one, "% of roof");
    if (name.what.empty() || share <= 0) continue;
    bars.push_back({name.product(),
                    {name.product() + ", " + name.implementation,
                     fmt::format("{:.0f} %", share),
                     {{name.implementation, share, colours.of(name.implementation)}}}});
  }
  std::stable_sort(bars.begin(), bars.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Bar> sorted;
  for (auto& [product, bar] : bars) sorted.push_back(std::move(bar));
  return colours.legend() + bars_svg(sorted);
}

std::string by_kernel(const std::vector<Measured>& all) {
  Palette colours;
  std::vector<Bar> bars;
  for (const Measured& one : all) {
    Bar bar{ModelName(one.name).product(), "", {}};
    double total = 0;
    for (const auto& [name, us] : one.counters)
      if (name.rfind("us:", 0) == 0) total += us;
    for (const auto& [name, us] : one.counters)
      if (name.rfind("us:", 0) == 0)
        bar.parts.push_back({name.substr(3), 100 * us / total, colours.of(name.substr(3))});
    bar.note = fmt::format("{:.2f} ms", total / 1e3);
    if (!bar.parts.empty()) bars.push_back(std::move(bar));
  }
  return bars.empty() ? "" : colours.legend() + bars_svg(bars);
}

std::string scaling(const std::vector<Measured>& all) {
  LogChart chart("tokens", "tokens a second");
  Palette colours;
  std::map<std::string, LogChart::Line> lines;
  for (const Measured& one : all) {
    const ModelName name(one.name);
    if (name.what != "layer") continue;
    LogChart::Line& line = lines[name.model];
    line.label = name.model, line.colour = colours.of(name.model);
    line.points.emplace_back(name.tokens, name.tokens / one.median());
  }
  for (auto& [model, line] : lines) {
    std::sort(line.points.begin(), line.points.end());
    chart.add(std::move(line));
  }
  return chart.empty() ? "" : colours.legend() + chart.svg();
}

std::string numbers(const std::vector<Measured>& all) {
  std::string rows =
      "<tr><th>benchmark</th><th>median us</th><th>GFLOP/s</th><th>GB/s</th><th>% of roof</th><th>variant</th></tr>";
  for (const Measured& one : all)
    rows += fmt::format(
        "<tr><td>{}</td><td class=\"number\">{:.1f}</td><td class=\"number\">{:.1f}</td><td "
        "class=\"number\">{:.1f}</td>"
        "<td class=\"number\">{:.1f}</td><td>{}</td></tr>\n",
        escaped(one.name), one.median() * 1e6, counter(one, "GFLOP/s"), counter(one, "GB/s"), counter(one, "% of roof"),
        escaped(one.label));
  return "<div class=\"scroll\"><table>" + rows + "</table></div>";
}

}  // namespace

void write_report(const std::string& path, const nlohmann::ordered_json& document) {
  const std::vector<Measured> all = measured(document, "this run");
  const nlohmann::ordered_json& context = document.at("context");
  std::string page = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/><title>moecl "
      "bench</title><style>{}</style>"
      "</head>\n<body><h1>moecl bench</h1>\n",
      style);
  page += section("Device", "What was measured on, and what it does at best, measured in the same process.",
                  device(context));
  page += section("Roofline", "Dashed: what the machine can do. Each dot is a benchmark; touch it for its numbers.",
                  roofline(context, all));
  page += section("Against the roof and the peers", "Percent of the least time that the machine's rates allow.",
                  against_roof(all));
  if (const std::string kernels = by_kernel(all); !kernels.empty())
    page +=
        section("Time by kernel", "Of one traced pass of each layer, in percent; behind each bar the sum.", kernels);
  if (const std::string lines = scaling(all); !lines.empty())
    page += section("Scaling with the tokens", "Tokens of a call through the layer, and how many a second that makes.",
                    lines);
  page += section("Numbers", "Medians of the repetitions.", numbers(all));
  page += "</body></html>\n";
  AtomicFile file(path);
  file.write(page.data(), page.size());
  file.commit();
}

}  // namespace moecl::bench
