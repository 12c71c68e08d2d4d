#include "tests/cases/gather_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tests/cases/self_test.hpp"

namespace moecl::test {

std::string GatherRowsCase::describe() const {
  return fmt::format("{}[{}, {}] -> {}[{}, {}]", name(from), sources(), hidden, name(to), out_rows(), hidden);
}

std::vector<double> GatherRowsCase::expected() const {
  const std::vector<double> stored = rounded(to, rounded(from, x));
  std::vector<double> out(index.size() * static_cast<std::size_t>(hidden), untouched);
  for (std::size_t r = 0; r < index.size(); ++r)
    if (const std::int64_t from_row = source_row(r, sources(), index, divisor, rows); from_row >= 0)
      std::copy_n(stored.begin() + from_row * hidden, hidden, out.begin() + static_cast<std::ptrdiff_t>(r) * hidden);
  return out;
}

GatherRowsOperands::GatherRowsOperands(StreamView stream, GatherRowsCase of, Guards guards)
    : CaseOperands(stream, guards), case_(std::move(of)) {
  args.x = input(case_.from, {case_.sources(), case_.hidden}, case_.x);
  args.index = input(DType::i32, {case_.out_rows()}, doubles(case_.index));
  args.divisor = case_.divisor;
  args.row_ends = optional_input(DType::i32, {std::ssize(case_.rows.row_ends)}, doubles(case_.rows.row_ends));
  args.rows_per_expert = case_.rows.rows_per_expert;
  args.out = output(case_.to, {case_.out_rows(), case_.hidden});
}

std::vector<Compared> GatherRowsOperands::run(std::int32_t lanes) {
  if (!expected_) expected_ = case_.expected();
  renew();
  gather_rows::enqueue(stream(), args, {lanes});
  return {compare("", args.out, *expected_)};
}

std::vector<SelfTestResult> self_test_gather_rows(StreamView stream) {
  return self_test<GatherRowsOperands>(stream, "gather_rows", "",
                                       {33, DType::bf16, DType::f32, normal(5 * 33, 1), {9, 0, 3, 3, 8, 1, 6}, 2});
}

}  // namespace moecl::test
