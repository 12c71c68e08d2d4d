#include "tests/cases/gated_activation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tests/cases/self_test.hpp"
#include "tests/oracle/gated_activation.hpp"
#include "tests/oracle/quantize_rows.hpp"

namespace moecl::test {
namespace {

/// Compares codes with the unrounded quotients, and compares the scales of rows.
std::vector<Compared> compare_codes(const GatedActivationCase& of, const CaseTensors& tensors,
                                    const gated_activation::Args& args, const std::vector<double>& expected) {
  std::vector<double> quotients, scales;
  for (auto row = expected.begin(); row != expected.end(); row += of.width) {
    scales.push_back(oracle::quantize_row({row, row + of.width}, quantize_rows::Rounding::divide).scale);
    for (auto y = row; y != row + of.width; ++y) quotients.push_back(scales.back() > 0 ? *y / scales.back() : 0);
  }
  // The activation's own error moves a quotient by less than 1e-3: only next to a tie may it round the other way.
  return {tensors.compare("codes", args.out, quotients, 0.501 / 127, of.width),
          tensors.compare("scale", args.scale, scales, of.tolerance, 1)};
}

}  // namespace

std::string GatedActivationCase::describe() const {
  return fmt::format("{}[{}, {}]", name(from), row_count(), in_width());
}

std::vector<double> GatedActivationCase::expected() const {
  std::vector<double> out = oracle::gated_rows(rounded(from, x), static_cast<std::size_t>(in_width()), activation);
  for (std::size_t row = 0; row < rows.valid.size(); ++row)
    if (!rows.valid[row]) std::fill_n(out.begin() + static_cast<std::ptrdiff_t>(row) * width, width, untouched);
  return out;
}

GatedActivationCase::Args GatedActivationCase::bring(CaseTensors& tensors) const {
  Args args;
  const std::int64_t count = row_count();
  args.x = tensors.input(from, {count, in_width()}, x);
  args.row_ends = tensors.optional_input(DType::i32, {std::ssize(rows.row_ends)}, doubles(rows.row_ends));
  args.rows_per_expert = rows.rows_per_expert;
  args.activation = activation;
  args.out = tensors.output(to, {count, width});
  if (to == DType::i8) args.scale = tensors.output(DType::f32, {count});
  return args;
}

void GatedActivationCase::enqueue(StreamView stream, const Args& args, std::int32_t lanes) const {
  gated_activation::enqueue(stream, args, {lanes});
}

std::vector<Compared> GatedActivationCase::compare(const CaseTensors& tensors, const Args& args,
                                                   const Expected& expected) const {
  if (to == DType::i8) return compare_codes(*this, tensors, args, expected);
  return {tensors.compare("", args.out, expected, tolerance + storage_error(to))};
}

std::vector<SelfTestResult> self_test_gated_activation(StreamView stream) {
  std::vector<SelfTestResult> results;
  for (const ActivationFunction function :
       {ActivationFunction::silu, ActivationFunction::gelu, ActivationFunction::gelu_tanh,
        ActivationFunction::swigluoai, ActivationFunction::relu2, ActivationFunction::relu,
        ActivationFunction::fast_gelu})
    append(results,
           self_test(stream, "gated_activation", name(function), GatedActivationCase{33, normal(66, 1), {function}}));
  return results;
}

}  // namespace moecl::test
