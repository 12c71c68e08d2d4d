#include "tests/cases/combine.hpp"

#include <fmt/format.h>

#include <utility>

#include "tests/cases/self_test.hpp"

namespace moecl::test {

std::string CombineCase::describe() const {
  return fmt::format("{}[{}, {}] top {} -> {}[{}, {}]", name(rows), in.rows.size() / in.hidden, in.hidden, in.top_k,
                     name(out), tokens(), in.hidden);
}

std::vector<double> CombineCase::expected() const {
  oracle::CombineInput stored = in;
  for (std::vector<double>* values : {&stored.rows, &stored.bias, &stored.shared, &stored.residual})
    *values = rounded(rows, *values);
  stored.weights = rounded(weights, stored.weights);
  stored.shared_gate = rounded(DType::f32, stored.shared_gate);
  return oracle::combine(stored);
}

CombineOperands::CombineOperands(StreamView stream, CombineCase of, Guards guards)
    : CaseOperands(stream, guards), case_(std::move(of)) {
  const oracle::CombineInput& in = case_.in;
  const auto hidden = static_cast<std::int64_t>(in.hidden), top_k = static_cast<std::int64_t>(in.top_k),
             tokens = case_.tokens();
  args.rows = input(case_.rows, {std::ssize(in.rows) / hidden, hidden}, in.rows);
  args.slot_rows = input(DType::i32, {tokens * top_k}, doubles(in.slot_rows));
  args.column_slots = in.column_slots;
  args.weights = optional_input(case_.weights, {tokens, top_k}, in.weights);
  args.bias = optional_input(case_.rows, {std::ssize(in.bias) / hidden, hidden}, in.bias);
  args.bias_ids = optional_input(DType::i32, {tokens, top_k}, doubles(in.bias_ids));
  args.shared = optional_input(case_.rows, {tokens, hidden}, in.shared);
  args.shared_gate = optional_input(DType::f32, {tokens, 1}, in.shared_gate);
  args.residual = optional_input(case_.rows, {tokens, hidden}, in.residual);
  args.skip_zero_weights = in.skip_zero_weights;
  args.out = output(case_.out, {tokens, hidden});
}

std::vector<Compared> CombineOperands::run(std::int32_t lanes) {
  if (!expected_) expected_ = case_.expected();
  renew();
  combine::enqueue(stream(), args, {lanes});
  // One rounding for each product and each sum, then half a step of the storage type.
  return {compare("", args.out, *expected_, 1e-6 + storage_error(case_.out))};
}

std::vector<SelfTestResult> self_test_combine(StreamView stream) {
  return self_test<CombineOperands>(
      stream, "combine", "",
      {{33, 2, normal(6 * 33, 1), {5, 0, -1, 2, 4, 3}, normal(6, 2), normal(3 * 33, 3), normal(3, 4)}});
}

}  // namespace moecl::test
