#include "bench/chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace moecl::bench {
namespace {

constexpr double width = 720, height = 420, left = 64, right = 12, top = 12, bottom = 46;

/// Decimal logarithms from end to end of an axis, and where a value stands between two places of the picture.
struct LogAxis {
  double low = 1e300, high = -1e300, from, to;

  LogAxis(double begin, double end) : from(begin), to(end) {}
  void include(double value) { low = std::min(low, std::log10(value)), high = std::max(high, std::log10(value)); }
  /// Whole decades, at least one.
  void round() { low = std::floor(low), high = std::max(std::ceil(high), low + 1); }
  double at(double value) const { return from + (to - from) * (std::log10(value) - low) / (high - low); }
};

/// "0.01", "10", "1e+06"
std::string decade(double exponent) { return fmt::format("{:g}", std::pow(10, exponent)); }

std::string text(double x, double y, const char* anchor, const std::string& words) {
  return fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>)", x, y, anchor, escaped(words));
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    const std::string_view name = c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '"' ? "&quot;" : "";
    safe += name.empty() ? std::string_view(&c, 1) : name;
  }
  return safe;
}

const char* colour(std::size_t n) {
  static constexpr std::array<const char*, 9> colours = {"#1f5fa8", "#d9761a", "#2d8a4e", "#8a4fb0", "#b3282d",
                                                         "#6b6b6b", "#c2a11a", "#2aa3a3", "#d6609f"};
  return colours[n % colours.size()];
}

std::string LogChart::svg() const {
  LogAxis x(left, width - right), y(height - bottom, top);
  for (const Line& line : lines_)
    for (const auto& [px, py] : line.points)
      if (px > 0 && py > 0) x.include(px), y.include(py);
  x.round(), y.round();
  std::string body;
  for (double e = x.low; e <= x.high; ++e) {
    const double at = x.at(std::pow(10, e));
    body +=
        fmt::format(R"(<line class="grid" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}"/>)", at, top, height - bottom);
    body += text(at, height - bottom + 16, "middle", decade(e));
  }
  for (double e = y.low; e <= y.high; ++e) {
    const double at = y.at(std::pow(10, e));
    body += fmt::format(R"(<line class="grid" x1="{1}" x2="{2}" y1="{0:.1f}" y2="{0:.1f}"/>)", at, left, width - right);
    body += text(left - 6, at + 4, "end", decade(e));
  }
  body += text((left + width) / 2, height - 8, "middle", x_label_);
  body += fmt::format(R"svg(<text transform="translate(14 {}) rotate(-90)" text-anchor="middle">{}</text>)svg",
                      (height - bottom + top) / 2, escaped(y_label_));
  for (const Line& line : lines_) {
    std::string path, dots;
    for (const auto& [px, py] : line.points) {
      if (px <= 0 || py <= 0) continue;
      path += fmt::format("{:.1f},{:.1f} ", x.at(px), y.at(py));
      if (line.dots)
        dots +=
            fmt::format(R"(<circle cx="{:.1f}" cy="{:.1f}" r="4" fill="{}"><title>{}: {:.4g}, {:.4g}</title></circle>)",
                        x.at(px), y.at(py), line.colour, escaped(line.label), px, py);
    }
    if (line.joined)
      body += fmt::format(
          R"(<polyline fill="none" stroke="{}" stroke-width="2"{} points="{}"><title>{}</title></polyline>)",
          line.colour, line.dots ? "" : R"( stroke-dasharray="6 4")", path, escaped(line.label));
    body += dots;
  }
  return fmt::format(R"(<svg viewBox="0 0 {} {}" role="img" aria-label="{} over {}">{}</svg>)", width, height,
                     escaped(y_label_), escaped(x_label_), body);
}

std::string bars_svg(const std::vector<Bar>& bars) {
  constexpr double row = 38, note = 90;
  double longest = 0;
  const auto length = [](const Bar& bar) {
    double sum = 0;
    for (const Bar::Part& part : bar.parts) sum += part.value;
    return sum;
  };
  for (const Bar& bar : bars) longest = std::max(longest, length(bar));
  std::string body;
  double y = 0;
  for (const Bar& bar : bars) {
    body += text(0, y + 13, "start", bar.label);
    double x = 0;
    for (const Bar::Part& part : bar.parts) {
      const double wide = longest > 0 ? part.value / longest * (width - note) : 0;
      body += fmt::format(
          R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="14" fill="{}"><title>{}: {:.4g}</title></rect>)", x,
          y + 18, wide, part.colour, escaped(part.label), part.value);
      x += wide;
    }
    body += text(x + 5, y + 30, "start", bar.note);
    y += row;
  }
  return fmt::format(R"(<svg viewBox="0 0 {} {}" role="img" aria-label="bars">{}</svg>)", width, std::max(y, 1.0),
                     body);
}

std::string legend(const std::vector<std::pair<std::string, std::string>>& label_colours) {
  std::string html;
  for (const auto& [label, paint] : label_colours)
    html += fmt::format(
        R"(<span class="key"><svg viewBox="0 0 10 10"><rect width="10" height="10" fill="{}"/></svg>{}</span>)", paint,
        escaped(label));
  return "<p>" + html + "</p>";
}

}  // namespace moecl::bench
