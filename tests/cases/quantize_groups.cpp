#include "tests/cases/quantize_groups.hpp"

#include <moecl/code_numbers.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "tests/cases/self_test.hpp"
#include "tests/oracle/quantize_groups.hpp"

namespace moecl::test {

using quantize_groups::ScaleRule;

bool QuantizeGroupsCase::of_tensor() const {
  return args.rule == ScaleRule::given || args.rule == ScaleRule::ratio_over_rows;
}

std::string QuantizeGroupsCase::describe() const {
  return fmt::format("{}[{}, {}] by {}", name(dtype), sources(), width, args.group);
}

QuantizeGroupsOperands::QuantizeGroupsOperands(StreamView stream, QuantizeGroupsCase of, Guards guards)
    : CaseOperands(stream, guards), args(of.args), case_(std::move(of)) {
  const std::int64_t rows = case_.out_rows(), down = (rows + args.group_rows - 1) / args.group_rows,
                     across = case_.groups();
  args.x = input(case_.dtype, {case_.sources(), case_.width}, case_.x);
  args.index = optional_input(DType::i32, {rows}, doubles(case_.index));
  args.row_ends = optional_input(DType::i32, {std::ssize(case_.rows.row_ends)}, doubles(case_.rows.row_ends));
  args.rows_per_expert = case_.rows.rows_per_expert;
  args.q = output(case_.q, {rows, case_.width});
  const TensorView of_experts = optional_input(DType::f32, {std::ssize(case_.of_experts)}, case_.of_experts);
  if (args.rule != ScaleRule::given)
    args.global_scales = of_experts;
  else
    args.scale = of_experts.present() ? of_experts : input(DType::f32, {1}, {tensor_scale()});
  if (args.rule == ScaleRule::ratio_over_rows) args.scale = output(DType::f32, {1});
  if (!case_.of_tensor()) args.scale = output(case_.scale, {down, across});
  if (args.rule == ScaleRule::range) args.zero = output(DType::i32, {down, across});
}

float QuantizeGroupsOperands::tensor_scale() const {
  if (args.rule == ScaleRule::given) return 0.037F;
  const std::vector<double> x = rounded(case_.dtype, case_.x);
  float amax = 0;
  for (std::size_t r = 0; r < static_cast<std::size_t>(case_.out_rows()); ++r)
    if (const std::int64_t from = source_row(r, case_.sources(), case_.index, args.divisor, case_.rows); from >= 0)
      for (std::int64_t i = from * case_.width; i < (from + 1) * case_.width; ++i)
        amax = std::max(amax, std::abs(static_cast<float>(x[static_cast<std::size_t>(i)])));
  return oracle::ratio_scale(amax, args);
}

QuantizeGroupsOperands::Expected QuantizeGroupsOperands::expected() const {
  const std::vector<double> x = rounded(case_.dtype, case_.x);
  const std::int64_t rows = case_.out_rows(), width = case_.width, group = case_.group_columns();
  const auto size = static_cast<std::size_t>(rows * width);
  Expected out{std::vector<double>(size, untouched), std::vector<double>(size), std::vector<bool>(size), {}, {}};
  const float of_tensor = tensor_scale();
  for (std::int64_t top = 0; top < rows; top += args.group_rows)
    for (std::int64_t left = 0; left < width; left += group) {
      std::vector<float> block;
      std::vector<std::size_t> at;
      for (std::int64_t r = top; r < std::min(top + args.group_rows, rows); ++r) {
        const std::int64_t from =
            source_row(static_cast<std::size_t>(r), case_.sources(), case_.index, args.divisor, case_.rows);
        for (std::int64_t i = left; i < std::min(left + group, width) && from >= 0; ++i) {
          at.push_back(static_cast<std::size_t>(r * width + i));
          block.push_back(static_cast<float>(x[static_cast<std::size_t>(from * width + i)]));
        }
      }
      if (block.empty()) {
        out.scale.push_back(untouched);
        out.zero.push_back(untouched);
        continue;
      }
      quantize_groups::Args rules = case_.args;
      float given = of_tensor;
      if (!case_.of_experts.empty())
        (args.rule == ScaleRule::given ? given : rules.global_scale) =
            static_cast<float>(case_.of_experts[expert_of(static_cast<std::size_t>(top), case_.rows)]);
      const oracle::QuantizedGroup of_block = oracle::quantize_group(block, rules, given);
      out.scale.push_back(case_.scale == DType::f32 ? of_block.scale : of_block.scale_code);
      out.zero.push_back(of_block.zero);
      for (std::size_t i = 0; i < at.size(); ++i) {
        out.q[at[i]] = gives_numbers() ? double{of_block.values[i]} : double(of_block.codes[i]);
        out.step[at[i]] = of_block.scale;
        out.infinite[at[i]] = std::isinf(block[i]);
      }
    }
  if (case_.of_tensor()) out.scale = {of_tensor};
  return out;
}

/// One code beside the right one where division is not correctly rounded. Infinity over infinity is a NaN of either
/// sign: x86 and NVIDIA differ.
Compared QuantizeGroupsOperands::compare_codes() const {
  const bool integer = is_integer(args.format), exact = stream().device->caps.correctly_rounded_divide;
  Held codes = held(args.q, integer ? DType::i8 : DType::u8);
  if (!integer) {
    const int sign = 1 << (minifloat_of(args.format).bits() - 1);
    for (std::size_t i = 0; i < expected_->q.size(); ++i)
      if (expected_->infinite[i] && (static_cast<int>(codes.values[i]) ^ static_cast<int>(expected_->q[i])) == sign)
        codes.values[i] = expected_->q[i];
  }
  return within("q", codes, expected_->q, [&](std::size_t) { return exact ? 0 : 1; });
}

Compared QuantizeGroupsOperands::compare_numbers() const {
  const bool exact = stream().device->caps.correctly_rounded_divide;
  return within("q", held(args.q), expected_->q, [&](std::size_t i) {
    const double number = std::abs(expected_->q[i]), step = expected_->step[i];
    if (exact) return args.q.dtype == DType::f32 ? 0 : number / 128;
    return 1.01 * (is_integer(args.format) ? step : number / 2 + step / 2);
  });
}

std::vector<Compared> QuantizeGroupsOperands::run(std::int32_t lanes) {
  if (!expected_) expected_ = expected();
  renew();
  quantize_groups::enqueue(stream(), args, {lanes});
  const bool exact = stream().device->caps.correctly_rounded_divide;
  std::vector<Compared> all = {gives_numbers() ? compare_numbers() : compare_codes()};
  if (args.rule != ScaleRule::given)
    all.push_back(within(
        "scale", held(args.scale, case_.scale == DType::f32 ? DType::f32 : DType::u8), expected_->scale,
        [&](std::size_t i) { return exact || case_.scale != DType::f32 ? 0 : 3e-7 * std::abs(expected_->scale[i]); }));
  if (args.rule == ScaleRule::range)
    all.push_back(within("zero", held(args.zero), expected_->zero, [&](std::size_t) { return exact ? 0 : 1; }));
  return {worst_of("", all)};
}

std::vector<SelfTestResult> self_test_quantize_groups(StreamView stream) {
  std::vector<SelfTestResult> results;
  for (const auto& [name, format, rule] :
       {std::tuple("i8", CodeType::i8, ScaleRule::ratio), std::tuple("e4m3", CodeType::f8_e4m3, ScaleRule::ratio),
        std::tuple("mxfp6", CodeType::f6_e2m3, ScaleRule::mx_floor),
        std::tuple("nvfp4", CodeType::f4_e2m1, ScaleRule::e4m3)}) {
    QuantizeGroupsCase of{90, normal(3 * 90, 1), {}, DType::bf16};
    of.args.format = format;
    of.args.group = 32;
    of.args.rule = rule;
    append(results, self_test<QuantizeGroupsOperands>(stream, "quantize_groups", name, of));
  }
  return results;
}

}  // namespace moecl::test
