#include "tests/oracle/npu_matmul.hpp"

#include <algorithm>
#include <cmath>

namespace moecl::test::oracle {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

}  // namespace

std::vector<double> columns_of(const std::vector<double>& weights, std::int64_t k, std::int64_t n) {
  std::vector<double> columns(weights.size());
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(weights.size()); ++i) {
    const std::int64_t expert = i / (k * n), row = i / n % k, column = i % n;
    columns[at((expert * n + column) * k + row)] = weights[at(i)];
  }
  return columns;
}

std::vector<double> dequantized(const std::vector<double>& codes, std::int64_t k, std::int64_t n, std::int64_t groups,
                                const std::vector<double>& scale, const std::vector<double>& offset) {
  std::vector<double> weights(codes.size());
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(codes.size()); ++i) {
    const std::int64_t expert = i / (k * n), group = i / n % k / (k / groups);
    const std::size_t channel = at((expert * groups + group) * n + i % n);
    weights[at(i)] = (codes[at(i)] + (offset.empty() ? 0 : offset[channel])) * scale[channel];
  }
  return weights;
}

double nibbles(double x) {
  const double high = std::floor(x / 16);
  return 16 * high + (x - 16 * high) - 8;
}

SwigluQuant swiglu_quant(const std::vector<double>& rows, std::int64_t n, double limit,
                         const std::vector<double>& smooth) {
  SwigluQuant result;
  const std::int64_t half = n / 2, count = static_cast<std::int64_t>(rows.size()) / n;
  for (std::int64_t row = 0; row < count; ++row) {
    std::vector<double> y;
    double largest = 0;
    for (std::int64_t i = 0; i < half; ++i) {
      double gate = rows[at(row * n + i)], up = rows[at(row * n + half + i)];
      if (limit > 0) gate = std::min(gate, limit), up = std::clamp(up, -limit, limit);
      const double factor = smooth.empty() ? 1 : smooth[at(row * half + i)];
      y.push_back(gate / (1 + std::exp(-gate)) * up * factor);
      largest = std::max(largest, std::abs(y.back()));
    }
    const double scale = largest / 127;
    result.scale.push_back(scale);
    for (const double value : y) result.quotients.push_back(scale > 0 ? value / scale : 0);
  }
  return result;
}

void scatter_add(const std::vector<double>& rows, const std::vector<double>& destinations,
                 const std::vector<double>& weights, std::int64_t count, std::int64_t n, std::vector<double>& y) {
  for (std::int64_t row = 0; row < count; ++row)
    for (std::int64_t column = 0; column < n; ++column)
      y[at(static_cast<std::int64_t>(destinations[at(row)]) * n + column)] +=
          (weights.empty() ? 1 : weights[at(row)]) * rows[at(row * n + column)];
}

double activation(std::int64_t act_type, double x) {
  if (act_type == 1) return std::max(x, 0.0);
  if (act_type == 2) return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  if (act_type == 4) return x / (1 + std::exp(-1.702 * x));
  if (act_type == 5) return x / (1 + std::exp(-x));
  return x;
}

}  // namespace moecl::test::oracle
