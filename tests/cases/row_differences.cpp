#include "tests/cases/row_differences.hpp"

#include <fmt/format.h>

#include <utility>

#include "tests/cases/self_test.hpp"
#include "tests/oracle/row_differences.hpp"

namespace moecl::test {

std::string RowDifferencesCase::describe() const { return fmt::format("[{}, {}]", rows(), width); }

RowDifferencesCase::Args RowDifferencesCase::bring(CaseTensors& tensors) const {
  Args args;
  args.x = tensors.input(of_x, {rows(), width}, x);
  args.y = tensors.input(of_y, {rows(), width}, y);
  args.out = tensors.output(DType::f32, {rows(), 4});
  return args;
}

std::vector<double> RowDifferencesCase::expected() const {
  return oracle::row_differences(rounded(of_x, x), rounded(of_y, y), width);
}

void RowDifferencesCase::enqueue(StreamView stream, const Args& args, std::int32_t lanes) const {
  row_differences::enqueue(stream, args, {lanes});
}

std::vector<Compared> RowDifferencesCase::compare(const CaseTensors& tensors, const Args& args,
                                                  const Expected& expected) const {
  return {tensors.compare("", args.out, expected, 1e-6)};
}

std::vector<SelfTestResult> self_test_row_differences(StreamView stream) {
  return self_test(stream, "row_differences", "bf16, f32",
                   RowDifferencesCase{90, normal(3 * 90, 1), normal(3 * 90, 2), DType::bf16, DType::f32});
}

}  // namespace moecl::test
