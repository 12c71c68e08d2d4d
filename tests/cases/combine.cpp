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

CombineCase::Args CombineCase::bring(CaseTensors& tensors) const {
  Args args;
  const auto hidden = static_cast<std::int64_t>(in.hidden), top_k = static_cast<std::int64_t>(in.top_k);
  args.rows = tensors.input(rows, {std::ssize(in.rows) / hidden, hidden}, in.rows);
  args.slot_rows = tensors.input(DType::i32, {tokens() * top_k}, doubles(in.slot_rows));
  args.column_slots = in.column_slots;
  args.weights = tensors.optional_input(weights, {tokens(), top_k}, in.weights);
  args.bias = tensors.optional_input(rows, {std::ssize(in.bias) / hidden, hidden}, in.bias);
  args.bias_ids = tensors.optional_input(DType::i32, {tokens(), top_k}, doubles(in.bias_ids));
  args.shared = tensors.optional_input(rows, {tokens(), hidden}, in.shared);
  args.shared_gate = tensors.optional_input(DType::f32, {tokens(), 1}, in.shared_gate);
  args.residual = tensors.optional_input(rows, {tokens(), hidden}, in.residual);
  args.skip_zero_weights = in.skip_zero_weights;
  args.out = tensors.output(out, {tokens(), hidden});
  return args;
}

void CombineCase::enqueue(StreamView stream, const Args& args, std::int32_t lanes) const {
  combine::enqueue(stream, args, {lanes});
}

std::vector<Compared> CombineCase::compare(const CaseTensors& tensors, const Args& args,
                                           const Expected& expected) const {
  // One rounding for each product and each sum, then half a step of the storage type.
  return {tensors.compare("", args.out, expected, 1e-6 + storage_error(out))};
}

std::vector<SelfTestResult> self_test_combine(StreamView stream) {
  return self_test(
      stream, "combine", "",
      CombineCase{{33, 2, normal(6 * 33, 1), {5, 0, -1, 2, 4, 3}, normal(6, 2), normal(3 * 33, 3), normal(3, 4)}});
}

}  // namespace moecl::test
