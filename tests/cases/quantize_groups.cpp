#include "tests/oracle/quantize_groups.hpp"

#include <moecl/quantize_groups.hpp>

#include <algorithm>
#include <tuple>

#include "tests/cases/device_memory.hpp"
#include "tests/cases/self_test.hpp"

namespace moecl::test {

std::vector<SelfTestResult> self_test_quantize_groups(StreamView stream) {
  using quantize_groups::ScaleRule;
  constexpr std::int64_t rows = 3, width = 90, group = 32;
  const std::vector<double> x = rounded(DType::bf16, normal(rows * width, 1));
  const DeviceTensor device_x(stream, DType::bf16, {rows, width}, x), values(stream, DType::f32, {rows, width});
  // Where division is not correctly rounded a quotient next to a tie may go to the other side: one code.
  const bool exact = stream.device->caps.correctly_rounded_divide;
  std::vector<SelfTestResult> results;
  for (const auto& [name, format, rule] :
       {std::tuple("i8", CodeType::i8, ScaleRule::ratio), std::tuple("e4m3", CodeType::f8_e4m3, ScaleRule::ratio),
        std::tuple("mxfp6", CodeType::f6_e2m3, ScaleRule::mx_floor),
        std::tuple("nvfp4", CodeType::f4_e2m1, ScaleRule::e4m3)}) {
    quantize_groups::Args args;
    args.x = device_x;
    args.format = format;
    args.group = group;
    args.rule = rule;
    args.q = values;
    quantize_groups::enqueue(stream, args);
    std::vector<double> expected;
    for (auto row = x.begin(); row != x.end(); row += width)
      for (std::int64_t first = 0; first < width; first += group) {
        const auto numbers = oracle::quantize_group({row + first, row + std::min(first + group, width)}, args).values;
        expected.insert(expected.end(), numbers.begin(), numbers.end());
      }
    results.push_back({"quantize_groups", name, "bf16[3, 90] by 32", relative_error(values.values(stream), expected),
                       exact ? 0 : 0.2});
  }
  return results;
}

}  // namespace moecl::test
