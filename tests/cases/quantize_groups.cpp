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

namespace {

using Expected = QuantizeGroupsCase::Expected;

/// Allows a neighbouring code if division is not correctly rounded. Infinity over infinity is a NaN of either sign: x86
/// and NVIDIA differ.
Compared compare_codes(const CaseTensors& tensors, const quantize_groups::Args& args, const Expected& expected) {
  const bool integer = is_integer(args.format), exact = tensors.stream().device->caps.correctly_rounded_divide;
  CaseTensors::Held codes = tensors.held(args.q, integer ? DType::i8 : DType::u8);
  if (!integer) {
    const int sign = 1 << (minifloat_of(args.format).bits() - 1);
    for (std::size_t i = 0; i < expected.q.size(); ++i)
      if (expected.infinite[i] && (static_cast<int>(codes.values[i]) ^ static_cast<int>(expected.q[i])) == sign)
        codes.values[i] = expected.q[i];
  }
  return tensors.within("q", codes, expected.q, [&](std::size_t) { return exact ? 0 : 1; });
}

Compared compare_numbers(const CaseTensors& tensors, const quantize_groups::Args& args, const Expected& expected) {
  using quantize_groups::ScaleRule;
  const bool exact = tensors.stream().device->caps.correctly_rounded_divide,
             mx = args.rule >= ScaleRule::mx_floor && args.rule <= ScaleRule::mx_up;
  const double rounding = args.q.dtype == DType::f32 || (mx && args.q.dtype == DType::bf16) ? 0 : 0x1p-8;
  return tensors.within("q", tensors.held(args.q), expected.q, [&](std::size_t i) {
    const double number = std::abs(expected.q[i]), step = expected.step[i];
    if (exact) return number * rounding;
    return 1.01 * (is_integer(args.format) ? step : number / 2 + step / 2);
  });
}

}  // namespace

bool QuantizeGroupsCase::of_tensor() const {
  return rules.rule == ScaleRule::given || rules.rule == ScaleRule::ratio_over_rows;
}

std::string QuantizeGroupsCase::describe() const {
  return fmt::format("{}[{}, {}] by {}", name(dtype), sources(), width, rules.group);
}

QuantizeGroupsCase::Args QuantizeGroupsCase::bring(CaseTensors& tensors) const {
  Args args = rules;
  const std::int64_t count = out_rows(), down = (count + rules.group_rows - 1) / rules.group_rows, across = groups();
  args.x = tensors.input(dtype, {sources(), width}, x);
  args.index = tensors.optional_input(DType::i32, {count}, doubles(index));
  args.row_ends = tensors.optional_input(DType::i32, {std::ssize(rows.row_ends)}, doubles(rows.row_ends));
  args.rows_per_expert = rows.rows_per_expert;
  args.q = tensors.output(q, {count, width});
  const TensorView numbers = tensors.optional_input(DType::f32, {std::ssize(of_experts)}, of_experts);
  if (rules.rule != ScaleRule::given)
    args.global_scales = numbers;
  else
    args.scale = numbers.present() ? numbers : tensors.input(DType::f32, {1}, {tensor_scale()});
  if (rules.rule == ScaleRule::ratio_over_rows) args.scale = tensors.output(DType::f32, {1});
  if (!of_tensor()) args.scale = tensors.output(scale, {down, across});
  if (rules.rule == ScaleRule::range) args.zero = tensors.output(DType::i32, {down, across});
  return args;
}

float QuantizeGroupsCase::tensor_scale() const {
  if (rules.rule == ScaleRule::given) return 0.037F;
  const std::vector<double> stored = rounded(dtype, x);
  float amax = 0;
  for (std::size_t r = 0; r < static_cast<std::size_t>(out_rows()); ++r)
    if (const std::int64_t from = source_row(r, sources(), index, rules.divisor, rows); from >= 0)
      for (std::int64_t i = from * width; i < (from + 1) * width; ++i)
        amax = std::max(amax, std::abs(static_cast<float>(stored[static_cast<std::size_t>(i)])));
  return oracle::ratio_scale(amax, rules);
}

QuantizeGroupsCase::Expected QuantizeGroupsCase::expected() const {
  const std::vector<double> stored = rounded(dtype, x);
  const std::int64_t count = out_rows(), group = group_columns();
  const auto size = static_cast<std::size_t>(count * width);
  Expected out{std::vector<double>(size, untouched), std::vector<double>(size), std::vector<bool>(size), {}, {}};
  const float of_all = tensor_scale();
  for (std::int64_t top = 0; top < count; top += rules.group_rows)
    for (std::int64_t left = 0; left < width; left += group) {
      std::vector<float> block;
      std::vector<std::size_t> at;
      for (std::int64_t r = top; r < std::min(top + rules.group_rows, count); ++r) {
        const std::int64_t from = source_row(static_cast<std::size_t>(r), sources(), index, rules.divisor, rows);
        for (std::int64_t i = left; i < std::min(left + group, width) && from >= 0; ++i) {
          at.push_back(static_cast<std::size_t>(r * width + i));
          block.push_back(static_cast<float>(stored[static_cast<std::size_t>(from * width + i)]));
        }
      }
      if (block.empty()) {
        out.scale.push_back(untouched);
        out.zero.push_back(untouched);
        continue;
      }
      Args of_rows = rules;
      float given = of_all;
      if (!of_experts.empty())
        (rules.rule == ScaleRule::given ? given : of_rows.global_scale) =
            static_cast<float>(of_experts[expert_of(static_cast<std::size_t>(top), rows)]);
      const oracle::QuantizedGroup quantized = oracle::quantize_group(block, of_rows, given);
      out.scale.push_back(scale == DType::f32 ? quantized.scale : quantized.scale_code);
      out.zero.push_back(quantized.zero);
      for (std::size_t i = 0; i < at.size(); ++i) {
        out.q[at[i]] = gives_numbers() ? double{quantized.values[i]} : double(quantized.codes[i]);
        out.step[at[i]] = quantized.scale;
        out.infinite[at[i]] = std::isinf(block[i]);
      }
    }
  if (of_tensor()) out.scale = {of_all};
  return out;
}

void QuantizeGroupsCase::enqueue(StreamView stream, const Args& args, std::int32_t lanes) const {
  quantize_groups::enqueue(stream, args, {lanes});
}

std::vector<Compared> QuantizeGroupsCase::compare(const CaseTensors& tensors, const Args& args,
                                                  const Expected& expected) const {
  const bool exact = tensors.stream().device->caps.correctly_rounded_divide;
  std::vector<Compared> all = {gives_numbers() ? compare_numbers(tensors, args, expected)
                                               : compare_codes(tensors, args, expected)};
  if (args.rule != ScaleRule::given)
    all.push_back(tensors.within(
        "scale", tensors.held(args.scale, scale == DType::f32 ? DType::f32 : DType::u8), expected.scale,
        [&](std::size_t i) { return exact || scale != DType::f32 ? 0 : 3e-7 * std::abs(expected.scale[i]); }));
  if (args.rule == ScaleRule::range)
    all.push_back(
        tensors.within("zero", tensors.held(args.zero), expected.zero, [&](std::size_t) { return exact ? 0 : 1; }));
  return {worst_of("", all)};
}

std::vector<SelfTestResult> self_test_quantize_groups(StreamView stream) {
  std::vector<SelfTestResult> results;
  for (const auto& [name, format, rule] :
       {std::tuple("i8", CodeType::i8, ScaleRule::ratio), std::tuple("e4m3", CodeType::f8_e4m3, ScaleRule::ratio),
        std::tuple("mxfp6", CodeType::f6_e2m3, ScaleRule::mx_floor),
        std::tuple("nvfp4", CodeType::f4_e2m1, ScaleRule::e4m3)}) {
    QuantizeGroupsCase of{90, normal(3 * 90, 1), {}, DType::bf16};
    of.rules.format = format;
    of.rules.group = 32;
    of.rules.rule = rule;
    append(results, self_test(stream, "quantize_groups", name, of));
  }
  return results;
}

}  // namespace moecl::test
