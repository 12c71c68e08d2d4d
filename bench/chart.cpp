#include "bench/chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace moecl::bench {
namespace {

/// A logarithmic axis, by the decimal logarithms of its ends.
struct LogAxis {
  double low = 1e300, high = -1e300;

  void include(double value) { low = std::min(low, std::log10(value)), high = std::max(high, std::log10(value)); }
  /// Widens the axis to whole decades, at least one.
  void round() { low = std::floor(low), high = std::max(std::ceil(high), low + 1); }
  double percent(double value) const { return 100 * (std::log10(value) - low) / (high - low); }
  /// The exponents of ticks, few enough to read.
  std::vector<double> ticks() const {
    const double step = std::ceil((high - low) / 7);
    std::vector<double> exponents;
    for (double e = low; e <= high; e += step) exponents.push_back(e);
    return exponents;
  }
};

/// "0.01", "10", "1k", "100M"
std::string decade(double exponent) {
  static constexpr std::array<const char*, 6> prefixes = {"", "k", "M", "G", "T", "P"};
  const double thousands = std::clamp(std::floor(exponent / 3), 0.0, 5.0);
  return fmt::format("{:g}{}", std::pow(10, exponent - 3 * thousands), prefixes[static_cast<std::size_t>(thousands)]);
}

std::string dash_class(int dashes) { return dashes == 0 ? "" : fmt::format(" d{}", (dashes - 1) % 3 + 1); }

double inside(double percent) { return std::clamp(percent, 0.0, 100.0); }

}  // namespace

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    const std::string_view name = c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '"' ? "&quot;" : "";
    safe += name.empty() ? std::string_view(&c, 1) : name;
  }
  return safe;
}

std::string LogChart::svg() const {
  LogAxis x, y;
  for (const Line& line : lines_)
    for (const auto& [px, py] : line.points)
      if (px > 0 && py > 0) x.include(px), y.include(py);
  x.round(), y.round();
  std::string grid, lines, dots;
  for (const double e : x.ticks()) {
    const double at = x.percent(std::pow(10, e));
    grid += fmt::format(R"(<line class="grid" x1="{0:.2f}%" x2="{0:.2f}%" y1="0" y2="100%"/>)", at);
    grid += fmt::format(R"(<text x="{:.2f}%" y="100%" dy="17" text-anchor="middle">{}</text>)", at, decade(e));
  }
  for (const double e : y.ticks()) {
    const double at = 100 - y.percent(std::pow(10, e));
    grid += fmt::format(R"(<line class="grid" y1="{0:.2f}%" y2="{0:.2f}%" x1="0" x2="100%"/>)", at);
    grid += fmt::format(R"(<text x="0" y="{:.2f}%" dx="-6" dy="4" text-anchor="end">{}</text>)", at, decade(e));
  }
  grid += fmt::format(R"(<text x="0" y="0" dx="-38" dy="-12">{}</text>)", escaped(y_label_));
  grid += fmt::format(R"(<text x="100%" y="100%" dy="35" text-anchor="end">{}</text>)", escaped(x_label_));
  for (const Line& line : lines_) {
    std::string path;
    for (const auto& [px, py] : line.points) {
      if (px <= 0 || py <= 0) continue;
      const double left = x.percent(px), top = 100 - y.percent(py);
      path += fmt::format("{:.2f},{:.2f} ", left, top);
      if (line.dots)
        dots += fmt::format(
            R"(<circle class="c{}" cx="{:.2f}%" cy="{:.2f}%" r="3.5"><title>{}: {:.4g}, {:.4g}</title></circle>)",
            line.colour, left, top, escaped(line.label), px, py);
    }
    if (line.joined)
      lines += fmt::format(R"(<polyline class="c{}{}" points="{}"><title>{}</title></polyline>)", line.colour,
                           dash_class(line.dashes), path, escaped(line.label));
  }
  return fmt::format(
      R"(<svg class="plot" role="img" aria-label="{} over {}">{}<svg viewBox="0 0 100 100" preserveAspectRatio="none" )"
      R"(width="100%" height="100%">{}</svg>{}</svg>)",
      escaped(y_label_), escaped(x_label_), grid, lines, dots);
}

Track& Track::grid(double at) {
  marks_ += fmt::format(R"(<line class="grid" x1="{0:.2f}%" x2="{0:.2f}%" y1="0" y2="100%"/>)", inside(at));
  return *this;
}

Track& Track::bar(double from, double to, std::size_t colour, const std::string& title) {
  marks_ += fmt::format(R"(<rect class="c{}" x="{:.2f}%" width="{:.2f}%" y="2" height="10"><title>{}</title></rect>)",
                        colour, inside(from), inside(to) - inside(from), escaped(title));
  return *this;
}

Track& Track::range(double from, double to) {
  marks_ +=
      fmt::format(R"(<line class="range" x1="{:.2f}%" x2="{:.2f}%" y1="50%" y2="50%"/>)", inside(from), inside(to));
  for (const double end : {from, to})
    marks_ += fmt::format(R"(<line class="range" x1="{0:.2f}%" x2="{0:.2f}%" y1="4" y2="10"/>)", inside(end));
  return *this;
}

Track& Track::dot(double at, std::size_t colour, const std::string& title) {
  marks_ += fmt::format(R"(<circle class="c{}" cx="{:.2f}%" cy="50%" r="3.5"><title>{}</title></circle>)", colour,
                        inside(at), escaped(title));
  return *this;
}

std::string Track::svg() const { return fmt::format(R"(<svg class="track" aria-hidden="true">{}</svg>)", marks_); }

std::string legend(const std::vector<Key>& keys) {
  std::string html;
  for (const Key& key : keys)
    html += fmt::format(R"(<li><svg class="key" aria-hidden="true">{}</svg>{}</li>)",
                        key.dashes < 0 ? fmt::format(R"(<rect class="c{}" width="100%" height="100%"/>)", key.colour)
                                       : fmt::format(R"(<line class="c{}{}" x2="100%" y1="50%" y2="50%"/>)", key.colour,
                                                     dash_class(key.dashes)),
                        escaped(key.label));
  return html.empty() ? "" : "<ul class=\"legend\">" + html + "</ul>";
}

}  // namespace moecl::bench
