#pragma once
#include <algorithm>
#include <cmath>

namespace moecl {

/// Differences between quantized weights and the plain ones, over all matrices that were added.
struct QuantizationError {
  double largest_difference = 0, largest = 0;  ///< magnitudes of differences, and of weights
  double sum_squared_differences = 0, sum_squared = 0;

  double max_relative() const noexcept { return largest > 0 ? largest_difference / largest : 0; }
  double rms_relative() const noexcept {
    return sum_squared > 0 ? std::sqrt(sum_squared_differences / sum_squared) : 0;
  }
  /// Adds the error of another matrix.
  void add(const QuantizationError& other) noexcept {
    largest_difference = std::max(largest_difference, other.largest_difference);
    largest = std::max(largest, other.largest);
    sum_squared_differences += other.sum_squared_differences;
    sum_squared += other.sum_squared;
  }
};

}  // namespace moecl
