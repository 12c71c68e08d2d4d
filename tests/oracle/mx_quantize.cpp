#include "tests/oracle/mx_quantize.hpp"

#include <algorithm>
#include <cmath>

namespace moecl::test::oracle {

using mx_quantize::Rounding;
using mx_quantize::ScaleRule;

std::uint8_t minifloat_code(double x, const Minifloat& format, Rounding rounding) {
  const double magnitude = std::abs(x);
  int below = 0;  // the largest code whose number is not above
  for (int step = 128; step > 0; step /= 2)
    if (below + step <= format.largest && format.decode(static_cast<std::uint8_t>(below + step)) <= magnitude)
      below += step;
  const double low = format.decode(static_cast<std::uint8_t>(below));
  int code = below;
  if (below < format.largest && low < magnitude) {
    const double middle = (low + format.decode(static_cast<std::uint8_t>(below + 1))) / 2;
    const bool odd = below % 2 != 0;
    const bool up = rounding == Rounding::downward      ? std::signbit(x)
                    : rounding == Rounding::halves_away ? magnitude >= middle
                                                        : magnitude > middle || (magnitude == middle && odd);
    code += up ? 1 : 0;
  }
  return static_cast<std::uint8_t>(code | (std::signbit(x) ? 1 << (format.bits() - 1) : 0));
}

MxBlock mx_quantize_block(const std::vector<double>& x, const mx_quantize::Args& rules) {
  MxBlock out{0, std::vector<std::uint8_t>(x.size())};
  double amax = 0;
  for (const double value : x) {
    if (!std::isfinite(value)) {
      out.scale = 255;
      return out;
    }
    amax = std::max(amax, std::abs(value));
  }
  if (amax > 0 || !rules.zeros_stay) amax = std::max(amax, static_cast<double>(rules.least_amax));
  int exponent = -127;
  if (amax > 0) {
    const double largest = rules.format.decode(rules.format.largest);
    exponent = std::ilogb(amax) - std::ilogb(largest);
    if (rules.scale_rule == ScaleRule::ceil_ratio && std::ldexp(largest, exponent) < amax) ++exponent;
    exponent = std::clamp(exponent, rules.least_scale - 127, 127);
  }
  out.scale = static_cast<std::uint8_t>(exponent + 127);
  for (std::size_t i = 0; i < x.size(); ++i)
    out.codes[i] = minifloat_code(std::ldexp(x[i], -exponent), rules.format, rules.rounding);
  return out;
}

MxTensor mx_quantize(const std::vector<double>& x, std::int64_t length, std::int64_t inner,
                     const mx_quantize::Args& rules) {
  const auto l = static_cast<std::size_t>(length), i = static_cast<std::size_t>(inner);
  const std::size_t rows = l * i == 0 ? 0 : x.size() / (l * i), pairs = (l + 63) / 64;
  MxTensor out{std::vector<std::uint8_t>(x.size()), std::vector<std::uint8_t>(rows * pairs * i * 2)};
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t column = 0; column < i; ++column)
      for (std::size_t first = 0; first < l; first += 32) {
        std::vector<double> values;
        for (std::size_t j = first; j < std::min(first + 32, l); ++j) values.push_back(x[(r * l + j) * i + column]);
        const MxBlock block = mx_quantize_block(values, rules);
        out.scale[((r * pairs + first / 64) * i + column) * 2 + first / 32 % 2] = block.scale;
        for (std::size_t j = 0; j < values.size(); ++j) out.y[(r * l + first + j) * i + column] = block.codes[j];
      }
  if (rules.format.bits() != 4) return out;
  std::vector<std::uint8_t> bytes;
  for (std::size_t j = 0; j + 1 < out.y.size(); j += 2)
    bytes.push_back(static_cast<std::uint8_t>(out.y[j] | out.y[j + 1] << 4));
  out.y = bytes;
  return out;
}

}  // namespace moecl::test::oracle
