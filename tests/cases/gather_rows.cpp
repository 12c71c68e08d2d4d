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

GatherRowsCase::Args GatherRowsCase::bring(CaseTensors& tensors) const {
  Args args;
  args.x = tensors.input(from, {sources(), hidden}, x);
  args.index = tensors.input(DType::i32, {out_rows()}, doubles(index));
  args.divisor = divisor;
  args.row_ends = tensors.optional_input(DType::i32, {std::ssize(rows.row_ends)}, doubles(rows.row_ends));
  args.rows_per_expert = rows.rows_per_expert;
  args.out = tensors.output(to, {out_rows(), hidden});
  return args;
}

void GatherRowsCase::enqueue(StreamView stream, const Args& args, std::int32_t lanes) const {
  gather_rows::enqueue(stream, args, {lanes});
}

std::vector<Compared> GatherRowsCase::compare(const CaseTensors& tensors, const Args& args,
                                              const Expected& expected) const {
  return {tensors.compare("", args.out, expected)};
}

std::vector<SelfTestResult> self_test_gather_rows(StreamView stream) {
  return self_test(stream, "gather_rows", "",
                   GatherRowsCase{33, DType::bf16, DType::f32, normal(5 * 33, 1), {9, 0, 3, 3, 8, 1, 6}, 2});
}

}  // namespace moecl::test
