#pragma once
// Plots as self-contained inline SVG. Positions are percentages of the available space and text is not scaled, so that
// a plot is readable on a phone as well as on a desk.
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace moecl::bench {

/// Escapes text for HTML and SVG.
std::string escaped(const std::string& text);

/// The colours of the page's style are numbered from 0. The last one is for everything that has no colour of its own.
constexpr std::size_t colours = 9, no_colour = colours - 1;

/// A plot with two logarithmic axes.
class LogChart {
 public:
  LogChart(std::string x_label, std::string y_label) : x_label_(std::move(x_label)), y_label_(std::move(y_label)) {}

  struct Line {
    std::string label;
    std::size_t colour = 0;
    std::vector<std::pair<double, double>> points;  ///< positive; other points are left out
    bool dots = true;
    bool joined = true;
    int dashes = 0;  ///< pattern of the joining line; 0: solid, each other number another pattern
  };
  void add(Line line) { lines_.push_back(std::move(line)); }
  bool empty() const { return lines_.empty(); }
  std::string svg() const;

 private:
  std::string x_label_, y_label_;
  std::vector<Line> lines_;
};

/// A low strip for a row of a table, as wide as its place. Positions are percentages. Values outside stand at the edge.
class Track {
 public:
  Track& grid(double at);
  Track& bar(double from, double to, std::size_t colour, const std::string& title);
  /// A thin line with end marks: the spread of the repetitions.
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
  int dashes = -1;  ///< a line of this pattern; negative: a square
};
std::string legend(const std::vector<Key>& keys);

}  // namespace moecl::bench
