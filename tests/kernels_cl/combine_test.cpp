#include "tests/oracle/combine.hpp"

#include <moecl/combine.hpp>

#include <limits>

#include "tests/devices.hpp"

namespace moecl::test {
namespace {

constexpr std::int32_t lane_choices[] = {1, 64};

class CombineTest : public OnEveryDevice {
 protected:
  /// Combines with 1 and with 64 lanes; compares with the oracle on the values as stored.
  void check(oracle::CombineInput in, DType rows_dtype, DType out_dtype) {
    const auto hidden = static_cast<std::int64_t>(in.hidden), top_k = static_cast<std::int64_t>(in.top_k);
    const auto slots = static_cast<std::int64_t>(in.slot_rows.size()), tokens = slots / top_k;
    const auto row_count = static_cast<std::int64_t>(in.rows.size()) / hidden;
    in.rows = rounded(rows_dtype, in.rows);
    in.weights = rounded(DType::f32, in.weights);
    in.shared = rounded(rows_dtype, in.shared);
    in.shared_gate = rounded(DType::f32, in.shared_gate);
    const GuardedTensor rows = upload(device(), rows_dtype, {row_count, hidden}, in.rows);
    const GuardedTensor slot_rows(device(), DType::i32, {slots}, in.slot_rows);
    const GuardedTensor weights = upload(device(), DType::f32, {in.weights.empty() ? 0 : tokens, top_k}, in.weights);
    const GuardedTensor shared = upload(device(), rows_dtype, {in.shared.empty() ? 0 : tokens, hidden}, in.shared);
    const GuardedTensor gate = upload(device(), DType::f32, {in.shared_gate.empty() ? 0 : tokens, 1}, in.shared_gate);
    const auto optional = [](const std::vector<double>& values, const TensorView& view) {
      return values.empty() ? TensorView() : view;
    };
    for (const std::int32_t lanes : lane_choices) {
      SCOPED_TRACE(testing::Message() << name(rows_dtype) << " to " << name(out_dtype) << ", T = " << tokens
                                      << ", K = " << top_k << ", H = " << hidden << ", lanes = " << lanes);
      const GuardedTensor out(device(), out_dtype, {tokens, hidden});
      combine::enqueue(device().stream,
                       {rows, slot_rows, optional(in.weights, weights), optional(in.shared, shared),
                        optional(in.shared_gate, gate), in.skip_zero_weights, out},
                       {lanes});
      // One rounding for each product and each sum, then half a step of the storage type.
      const double storage = out_dtype == DType::bf16 ? 4e-3 : out_dtype == DType::f16 ? 5e-4 : 0;
      EXPECT_LE(relative_error(out.values(), oracle::combine(in)), 1e-6 + storage);
    }
  }
};
MOECL_ON_EVERY_DEVICE(CombineTest);

TEST_P(CombineTest, SumsWeightedRowsInEveryStorageType) {
  for (const DType from : {DType::f32, DType::f16, DType::bf16})
    for (const DType to : {DType::f32, from}) {
      oracle::CombineInput in{33,          2, normal(7 * 33, 1), {6, 0, 3, 2, 5, 1}, normal(6, 2), normal(3 * 33, 3),
                              normal(3, 4)};
      check(in, from, to);
      in.shared.clear();
      in.shared_gate.clear();
      check(in, from, to);
    }
}

}  // namespace
}  // namespace moecl::test
