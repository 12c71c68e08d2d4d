#include "tests/oracle/gated_activation.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace moecl::test::oracle {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double activated(const Activation& a, double g, double u) {
  switch (a.function) {
    case ActivationFunction::silu:
      return g * sigmoid(g) * u;
    case ActivationFunction::gelu:
      return 0.5 * g * (1 + std::erf(g / std::sqrt(2.0))) * u;
    case ActivationFunction::gelu_tanh:
      return 0.5 * g * (1 + std::tanh(std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g))) * u;
    case ActivationFunction::relu2:
      return g > 0 ? g * g * u : 0;
    case ActivationFunction::relu:
      return g > 0 ? g * u : 0;
    case ActivationFunction::fast_gelu:
      return g * sigmoid(1.702 * g) * u;
    case ActivationFunction::swigluoai:
      break;
  }
  const double limit = a.limit > 0 ? a.limit : std::numeric_limits<double>::infinity();
  const double gate = std::min(g, limit), up = std::clamp(u, -limit, limit);
  return (up + a.bias) * gate * sigmoid(a.alpha * gate);
}

}  // namespace

std::vector<double> gated_activation(const std::vector<double>& x, const Activation& activation) {
  if (!activation.gated) {
    std::vector<double> out;
    for (const double value : x) out.push_back(activated(activation, value, 1));
    return out;
  }
  const std::size_t width = x.size() / 2;
  std::vector<double> out(width);
  for (std::size_t i = 0; i < width; ++i) {
    double left = x[activation.interleaved ? 2 * i : i], right = x[activation.interleaved ? 2 * i + 1 : width + i];
    if (activation.gate_is_right) std::swap(left, right);
    out[i] = activated(activation, left, right);
  }
  return out;
}

std::vector<double> gated_rows(const std::vector<double>& x, std::size_t width, const Activation& activation) {
  std::vector<double> out;
  for (auto row = x.begin(); row != x.end(); row += static_cast<std::ptrdiff_t>(width)) {
    const std::vector<double> activated = gated_activation({row, row + static_cast<std::ptrdiff_t>(width)}, activation);
    out.insert(out.end(), activated.begin(), activated.end());
  }
  return out;
}

}  // namespace moecl::test::oracle
