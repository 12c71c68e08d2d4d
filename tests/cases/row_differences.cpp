#include "tests/cases/row_differences.hpp"

#include <fmt/format.h>

#include <utility>

#include "tests/cases/self_test.hpp"
#include "tests/oracle/row_differences.hpp"

namespace moecl::test {

std::string RowDifferencesCase::describe() const { return fmt::format("[{}, {}]", rows(), width); }

RowDifferencesOperands::RowDifferencesOperands(StreamView stream, RowDifferencesCase of, Guards guards)
    : CaseOperands(stream, guards), case_(std::move(of)) {
  args.x = input(case_.of_x, {case_.rows(), case_.width}, case_.x);
  args.y = input(case_.of_y, {case_.rows(), case_.width}, case_.y);
  args.out = output(DType::f32, {case_.rows(), 4});
}

std::vector<Compared> RowDifferencesOperands::run(std::int32_t lanes) {
  if (!expected_)
    expected_ = oracle::row_differences(rounded(case_.of_x, case_.x), rounded(case_.of_y, case_.y), case_.width);
  renew();
  row_differences::enqueue(stream(), args, {lanes});
  return {compare("", args.out, *expected_, 1e-6)};
}

std::vector<SelfTestResult> self_test_row_differences(StreamView stream) {
  return self_test<RowDifferencesOperands>(stream, "row_differences", "bf16, f32",
                                           {90, normal(3 * 90, 1), normal(3 * 90, 2), DType::bf16, DType::f32});
}

}  // namespace moecl::test
