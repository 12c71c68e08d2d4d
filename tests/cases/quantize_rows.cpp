#include "tests/cases/quantize_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tests/cases/self_test.hpp"
#include "tests/oracle/quantize_rows.hpp"

namespace moecl::test {
namespace {

using quantize_rows::Scheme;

/// Scale and offset for Scheme::static_f16.
const oracle::QuantizedRow static_numbers{37.3F, {}, -3.3F};

/// Each word as eight int4, the first in the lowest bits.
template <class T, class Of>
std::vector<T> by_eight(const std::vector<T>& words, const Of& of) {
  std::vector<T> all;
  for (const T word : words)
    for (int i = 0; i < 8; ++i) all.push_back(of(word, i));
  return all;
}

double int4_of(double word, int i) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(static_cast<std::int32_t>(word)) << (28 - 4 * i)) >> 28;
}

}  // namespace

std::string QuantizeRowsCase::describe() const {
  std::string text = fmt::format("{}[{}, {}]", name(dtype), sources(), hidden);
  if (rounding != quantize_rows::Rounding::divide) text += fmt::format(", rounding {}", static_cast<int>(rounding));
  if (scheme != Scheme::symmetric) text += fmt::format(", scheme {}", static_cast<int>(scheme));
  if (codes != quantize_rows::Codes::integer)
    text += fmt::format(", floats {}, group {}, power of two {}, least amax {}", static_cast<int>(codes), group,
                        power_of_two, least_amax);
  return text + (int4 ? ", int4" : "");
}

void QuantizeRowsCase::expect_row(Expected& out, const std::vector<double>& row) const {
  const bool floats = codes != quantize_rows::Codes::integer;
  if (scheme == Scheme::given) {
    for (const double value : row) {
      const float scaled = static_cast<float>(value) * (given.empty() ? 1 : given.front());
      out.q.push_back(floats ? oracle::float_code(scaled, codes, !given.empty())
                             : std::clamp(std::nearbyint(scaled), -128.0F, 127.0F));
    }
  } else if (floats) {
    const oracle::FloatRow made = oracle::quantize_row_to_floats(
        row, {codes, rounding, static_cast<std::size_t>(group), power_of_two, least_amax});
    out.q.insert(out.q.end(), made.q.begin(), made.q.end());
    out.scale.insert(out.scale.end(), made.scale.begin(), made.scale.end());
    if (group != 0) out.scale.push_back(0);
  } else {
    const oracle::QuantizedRow made = oracle::quantize_row(row, rounding, scheme, int4 ? 7 : 127, static_numbers);
    out.q.insert(out.q.end(), made.q.begin(), made.q.end());
    out.scale.push_back(made.scale);
    out.offset.push_back(made.offset);
  }
}

QuantizeRowsCase::Expected QuantizeRowsCase::expected() const {
  const auto width = static_cast<std::size_t>(hidden);
  const std::vector<double> stored = rounded(dtype, x), factors = rounded(smooth_dtype, smooth);
  Expected out;
  for (std::size_t r = 0; r < static_cast<std::size_t>(out_rows()); ++r) {
    const std::int64_t from = source_row(r, sources(), index, divisor, rows);
    if (from < 0) {
      out.q.insert(out.q.end(), width, untouched);
      out.scale.insert(out.scale.end(), static_cast<std::size_t>(scale_columns()), untouched);
      out.offset.push_back(untouched);
      continue;
    }
    std::vector<double> row(stored.begin() + from * hidden, stored.begin() + (from + 1) * hidden);
    const std::size_t first = factors.size() > width ? expert_of(r, rows) * width : 0;
    for (std::size_t h = 0; h < width && !factors.empty(); ++h)
      row[h] = static_cast<float>(row[h]) * static_cast<float>(factors[first + h]);
    expect_row(out, row);
  }
  return out;
}

QuantizeRowsCase::Args QuantizeRowsCase::bring(CaseTensors& tensors) const {
  Args args;
  const std::int64_t count = out_rows();
  const auto parameter = [&](float if_static) {
    return is_static() ? tensors.input(DType::f32, {1}, {if_static}) : tensors.output(DType::f32, {count});
  };
  args.x = tensors.input(dtype, {sources(), hidden}, x);
  args.row_ends = tensors.optional_input(DType::i32, {std::ssize(rows.row_ends)}, doubles(rows.row_ends));
  args.rows_per_expert = rows.rows_per_expert;
  const bool floats = codes != quantize_rows::Codes::integer;
  args.q = int4 ? tensors.output(DType::i32, {count, hidden / 8})
                : tensors.output(floats ? DType::u8 : DType::i8, {count, hidden});
  if (scheme == Scheme::given)
    args.scale = tensors.optional_input(DType::f32, {std::ssize(given)}, {given.begin(), given.end()});
  else if (group != 0)
    args.scale = tensors.output(DType::f32, {count, scale_columns()});
  else
    args.scale = parameter(static_numbers.scale);
  if (scheme == Scheme::asymmetric || scheme == Scheme::static_f16) args.offset = parameter(static_numbers.offset);
  args.codes = codes;
  args.group = group;
  args.power_of_two = power_of_two;
  args.least_amax = least_amax;
  args.rounding = rounding;
  args.scheme = scheme;
  args.smooth = tensors.optional_input(smooth_dtype, {std::ssize(smooth) / hidden, hidden}, smooth);
  args.index = tensors.optional_input(DType::i32, {count}, doubles(index));
  args.divisor = divisor;
  return args;
}

void QuantizeRowsCase::enqueue(StreamView stream, const Args& args, std::int32_t lanes) const {
  quantize_rows::enqueue(stream, args, {lanes});
}

std::vector<Compared> QuantizeRowsCase::compare(const CaseTensors& tensors, const Args& args,
                                                const Expected& expected) const {
  CaseTensors::Held q = tensors.held(args.q);
  if (int4) {
    q.values = by_eight(q.values, int4_of);
    q.is_poison = by_eight(q.is_poison, [](bool word, int) { return word; });
  }
  // If division is not correctly rounded, a value next to a tie may round to the other side: one code.
  const bool exact = tensors.stream().device->caps.correctly_rounded_divide || is_static();
  std::vector<Compared> results = {exact ? tensors.compare("q", q, expected.q)
                                         : tensors.within("q", q, expected.q, [](std::size_t) { return 1; })};
  if (is_static()) return results;
  results.push_back(exact ? tensors.compare("scale", args.scale, expected.scale)
                          : tensors.within("scale", tensors.held(args.scale), expected.scale,
                                           [&](std::size_t row) { return 3e-7 * std::abs(expected.scale[row]); }));
  if (scheme != Scheme::asymmetric) return results;
  results.push_back(exact ? tensors.compare("offset", args.offset, expected.offset)
                          : tensors.within("offset", tensors.held(args.offset), expected.offset, [&](std::size_t row) {
                              return 3e-5 + 3e-6 * std::abs(expected.offset[row]);
                            }));
  return results;
}

std::vector<SelfTestResult> self_test_quantize_rows(StreamView stream) {
  QuantizeRowsCase of{33, normal(4 * 33, 1)};
  of.dtype = DType::bf16;
  return self_test(stream, "quantize_rows", "", of);
}

}  // namespace moecl::test
