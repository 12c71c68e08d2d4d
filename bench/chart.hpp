#pragma once
// Plots as inline SVG: they scale with the page, print, and need nothing else.
#include <string>
#include <utility>
#include <vector>

namespace moecl::bench {

/// Text as it may stand in HTML and SVG.
std::string escaped(const std::string& text);
/// The n-th of a few colours that differ in print too.
const char* colour(std::size_t n);

/// Both axes logarithmic.
class LogChart {
 public:
  LogChart(std::string x_label, std::string y_label) : x_label_(std::move(x_label)), y_label_(std::move(y_label)) {}

  struct Line {
    std::string label, colour;
    std::vector<std::pair<double, double>> points;  ///< positive; others are left out
    bool dots = true;                               ///< a dot a point; else the line alone, dashed
    bool joined = true;
  };
  void add(Line line) { lines_.push_back(std::move(line)); }
  bool empty() const { return lines_.empty(); }
  std::string svg() const;

 private:
  std::string x_label_, y_label_;
  std::vector<Line> lines_;
};

/// A horizontal bar of parts behind each other.
struct Bar {
  struct Part {
    std::string label;
    double value = 0;
    std::string colour;
  };
  std::string label, note;  ///< before it; behind it
  std::vector<Part> parts;
};
std::string bars_svg(const std::vector<Bar>& bars);
/// Coloured squares with their labels, as HTML.
std::string legend(const std::vector<std::pair<std::string, std::string>>& label_colours);

}  // namespace moecl::bench
