#include "tests/cases/mx_quantize.hpp"

#include <moecl/fp4.hpp>
#include <moecl/fp8.hpp>

#include <fmt/format.h>

#include <utility>

#include "tests/cases/self_test.hpp"
#include "tests/oracle/mx_quantize.hpp"

namespace moecl::test {

std::string MxQuantizeCase::describe() const {
  std::string text =
      fmt::format("{}[{}, {}{}]", name(dtype), sources(), length, inner == 1 ? "" : fmt::format(", {}", inner));
  if (rules.rounding != mx_quantize::Rounding::halves_to_even)
    text += fmt::format(", rounding {}", static_cast<int>(rules.rounding));
  if (rules.scale_rule != mx_quantize::ScaleRule::floor_amax)
    text += fmt::format(", scale rule {}", static_cast<int>(rules.scale_rule));
  return text;
}

MxQuantizeCase::Args MxQuantizeCase::bring(CaseTensors& tensors) const {
  Args args = rules;
  const std::int64_t count = out_rows();
  const bool packed = args.format.bits() == 4;
  args.x = tensors.input(dtype, {sources(), length, inner}, x);
  args.index = tensors.optional_input(DType::i32, {count}, doubles(index));
  args.row_ends = tensors.optional_input(DType::i32, {std::ssize(rows.row_ends)}, doubles(rows.row_ends));
  args.rows_per_expert = rows.rows_per_expert;
  args.y = tensors.output(DType::u8,
                          {count, packed && inner == 1 ? length / 2 : length, packed && inner > 1 ? inner / 2 : inner});
  args.scale = tensors.output(DType::u8, {count, (length + 63) / 64, inner, 2});
  return args;
}

MxQuantizeCase::Expected MxQuantizeCase::expected() const {
  const oracle::MxTensor all = oracle::mx_quantize(rounded(dtype, x), length, inner, rules);
  Expected out;
  const auto take = [&](const std::vector<std::uint8_t>& of_all, std::int64_t row, std::vector<double>& to) {
    const std::int64_t width = std::ssize(of_all) / sources();
    if (row < 0)
      to.insert(to.end(), static_cast<std::size_t>(width), untouched);
    else
      to.insert(to.end(), of_all.begin() + row * width, of_all.begin() + (row + 1) * width);
  };
  for (std::size_t r = 0; r < static_cast<std::size_t>(out_rows()); ++r) {
    const std::int64_t from = source_row(r, sources(), index, rules.divisor, rows);
    take(all.y, from, out.y);
    take(all.scale, from, out.scale);
  }
  return out;
}

void MxQuantizeCase::enqueue(StreamView stream, const Args& args, std::int32_t lanes) const {
  mx_quantize::enqueue(stream, args, {lanes});
}

std::vector<Compared> MxQuantizeCase::compare(const CaseTensors& tensors, const Args& args,
                                              const Expected& expected) const {
  return {tensors.compare("y", args.y, expected.y), tensors.compare("scale", args.scale, expected.scale)};
}

std::vector<SelfTestResult> self_test_mx_quantize(StreamView stream) {
  std::vector<SelfTestResult> results;
  for (const auto& [name, format] : {std::pair("e4m3", fp8_e4m3fn), std::pair("e2m1", fp4_e2m1)}) {
    MxQuantizeCase of{{}, DType::bf16, 90, 1, normal(3 * 90, 1)};
    of.rules.format = format;
    append(results, self_test(stream, "mx_quantize", name, of));
  }
  return results;
}

}  // namespace moecl::test
