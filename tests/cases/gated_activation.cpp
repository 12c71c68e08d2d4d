#include "tests/cases/gated_activation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tests/cases/self_test.hpp"
#include "tests/oracle/gated_activation.hpp"
#include "tests/oracle/quantize_rows.hpp"

namespace moecl::test {

std::string GatedActivationCase::describe() const {
  return fmt::format("{}[{}, {}]", name(from), row_count(), in_width());
}

std::vector<double> GatedActivationCase::expected() const {
  std::vector<double> out = oracle::gated_rows(rounded(from, x), static_cast<std::size_t>(in_width()), activation);
  for (std::size_t row = 0; row < rows.valid.size(); ++row)
    if (!rows.valid[row]) std::fill_n(out.begin() + static_cast<std::ptrdiff_t>(row) * width, width, untouched);
  return out;
}

GatedActivationOperands::GatedActivationOperands(StreamView stream, GatedActivationCase of, Guards guards)
    : CaseOperands(stream, guards), case_(std::move(of)) {
  const std::int64_t count = case_.row_count();
  args.x = input(case_.from, {count, case_.in_width()}, case_.x);
  args.row_ends = optional_input(DType::i32, {std::ssize(case_.rows.row_ends)}, doubles(case_.rows.row_ends));
  args.rows_per_expert = case_.rows.rows_per_expert;
  args.activation = case_.activation;
  args.out = output(case_.to, {count, case_.width});
  if (case_.to == DType::i8) args.scale = output(DType::f32, {count});
}

std::vector<Compared> GatedActivationOperands::run(std::int32_t lanes) {
  if (!expected_) expected_ = case_.expected();
  renew();
  gated_activation::enqueue(stream(), args, {lanes});
  if (case_.to == DType::i8) return compare_codes();
  return {compare("", args.out, *expected_, case_.tolerance + storage_error(case_.to))};
}

std::vector<Compared> GatedActivationOperands::compare_codes() const {
  std::vector<double> quotients, scales;
  for (auto row = expected_->begin(); row != expected_->end(); row += case_.width) {
    scales.push_back(oracle::quantize_row({row, row + case_.width}, quantize_rows::Rounding::divide).scale);
    for (auto y = row; y != row + case_.width; ++y) quotients.push_back(scales.back() > 0 ? *y / scales.back() : 0);
  }
  // The activation's own error moves a quotient by less than 1e-3: only next to a tie may it round the other way.
  return {compare("codes", args.out, quotients, 0.501 / 127, case_.width),
          compare("scale", args.scale, scales, case_.tolerance, 1)};
}

std::vector<SelfTestResult> self_test_gated_activation(StreamView stream) {
  std::vector<SelfTestResult> results;
  for (const ActivationFunction function :
       {ActivationFunction::silu, ActivationFunction::gelu, ActivationFunction::gelu_tanh,
        ActivationFunction::swigluoai, ActivationFunction::relu2, ActivationFunction::relu,
        ActivationFunction::fast_gelu})
    append(results, self_test<GatedActivationOperands>(stream, "gated_activation", name(function),
                                                       {33, normal(66, 1), {function}}));
  return results;
}

}  // namespace moecl::test
