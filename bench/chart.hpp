#pragma once
// Plots as inline SVG that need nothing else. Positions are percent of the place and text is not scaled, so that a plot
// can be read on a phone as on a desk.
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace moecl::bench {

/// Text as it may stand in HTML and SVG.
std::string escaped(const std::string& text);

/// The colours of the page's style, from 0 on; the last is that of whatever has none of its own.
constexpr std::size_t colours = 9, no_colour = colours - 1;

/// Both axes logarithmic.
class LogChart {
 public:
  LogChart(std::string x_label, std::string y_label) : x_label_(std::move(x_label)), y_label_(std::move(y_label)) {}

  struct Line {
    std::string label;
    std::size_t colour = 0;
    std::vector<std::pair<double, double>> points;  ///< positive; others are left out
    bool dots = true;
    bool joined = true;
    int dashes = 0;  ///< of the line that joins: 0 solid, then each number another pattern
  };
  void add(Line line) { lines_.push_back(std::move(line)); }
  bool empty() const { return lines_.empty(); }
  std::string svg() const;

 private:
  std::string x_label_, y_label_;
  std::vector<Line> lines_;
};

/// A low strip as wide as its place, for a row of a table. Positions are percent; what is outside stands at the edge.
class Track {
 public:
  Track& grid(double at);
  Track& bar(double from, double to, std::size_t colour, const std::string& title);
  /// A thin line with ends: what the repetitions spread over.
  Track& range(double from, double to);
  Track& dot(double at, std::size_t colour, const std::string& title);
  std::string svg() const;

 private:
  std::string marks_;
};

/// Coloured squares with their labels, as an HTML list.
struct Key {
  std::string label;
  std::size_t colour = 0;
  int dashes = -1;  ///< a line of these dashes; negative: a square
};
std::string legend(const std::vector<Key>& keys);

}  // namespace moecl::bench
