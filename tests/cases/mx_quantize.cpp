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

std::size_t MxQuantizeOperands::out_rows() const {
  return case_.index.empty() ? static_cast<std::size_t>(case_.sources()) : case_.index.size();
}

MxQuantizeOperands::MxQuantizeOperands(StreamView stream, MxQuantizeCase of, Guards guards)
    : CaseOperands(stream, guards), args(of.rules), case_(std::move(of)) {
  const std::int64_t length = case_.length, inner = case_.inner, count = static_cast<std::int64_t>(out_rows());
  const bool packed = args.format.bits() == 4;
  args.x = input(case_.dtype, {case_.sources(), length, inner}, case_.x);
  args.index = optional_input(DType::i32, {count}, doubles(case_.index));
  args.row_ends = optional_input(DType::i32, {std::ssize(case_.rows.row_ends)}, doubles(case_.rows.row_ends));
  args.rows_per_expert = case_.rows.rows_per_expert;
  args.y =
      output(DType::u8, {count, packed && inner == 1 ? length / 2 : length, packed && inner > 1 ? inner / 2 : inner});
  args.scale = output(DType::u8, {count, (length + 63) / 64, inner, 2});
}

MxQuantizeOperands::Bytes MxQuantizeOperands::expected() const {
  const std::int64_t count = case_.sources();
  const oracle::MxTensor all =
      oracle::mx_quantize(rounded(case_.dtype, case_.x), case_.length, case_.inner, case_.rules);
  Bytes bytes;
  const auto take = [&](const std::vector<std::uint8_t>& of_all, std::int64_t row, std::vector<double>& to) {
    const std::int64_t width = std::ssize(of_all) / count;
    if (row < 0)
      to.insert(to.end(), static_cast<std::size_t>(width), untouched);
    else
      to.insert(to.end(), of_all.begin() + row * width, of_all.begin() + (row + 1) * width);
  };
  for (std::size_t r = 0; r < out_rows(); ++r) {
    const std::int64_t from = source_row(r, count, case_.index, case_.rules.divisor, case_.rows);
    take(all.y, from, bytes.y);
    take(all.scale, from, bytes.scale);
  }
  return bytes;
}

std::vector<Compared> MxQuantizeOperands::run(std::int32_t lanes) {
  if (!expected_) expected_ = expected();
  renew();
  mx_quantize::enqueue(stream(), args, {lanes});
  return {compare("y", args.y, expected_->y), compare("scale", args.scale, expected_->scale)};
}

std::vector<SelfTestResult> self_test_mx_quantize(StreamView stream) {
  std::vector<SelfTestResult> results;
  for (const auto& [name, format] : {std::pair("e4m3", fp8_e4m3fn), std::pair("e2m1", fp4_e2m1)}) {
    MxQuantizeCase of{{}, DType::bf16, 90, 1, normal(3 * 90, 1)};
    of.rules.format = format;
    append(results, self_test<MxQuantizeOperands>(stream, "mx_quantize", name, of));
  }
  return results;
}

}  // namespace moecl::test
