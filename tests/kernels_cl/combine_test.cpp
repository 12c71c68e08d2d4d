#include "tests/cases/combine.hpp"

#include <moecl/error.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/kernels_cl/operator_test.hpp"

namespace moecl::test {
namespace {

combine::Args combine_args(const TensorView& rows, const TensorView& slot_rows, const TensorView& weights,
                           const TensorView& shared, const TensorView& shared_gate, bool skip_zero_weights,
                           const TensorView& out) {
  combine::Args args;
  args.rows = rows;
  args.slot_rows = slot_rows;
  args.weights = weights;
  args.shared = shared;
  args.shared_gate = shared_gate;
  args.skip_zero_weights = skip_zero_weights;
  args.out = out;
  return args;
}

class CombineTest : public OperatorTest<CombineCase> {};
MOECL_ON_EVERY_DEVICE(CombineTest);

TEST_P(CombineTest, SumsWeightedRowsInEveryStorageType) {
  for (const DType from : {DType::f32, DType::f16, DType::bf16})
    for (const DType to : {DType::f32, from}) {
      oracle::CombineInput in{33,          2, normal(7 * 33, 1), {6, 0, 3, 2, 5, 1}, normal(6, 2), normal(3 * 33, 3),
                              normal(3, 4)};
      check({in, from, to});
      in.shared.clear();
      in.shared_gate.clear();
      check({in, from, to});
    }
}

TEST_P(CombineTest, EveryWidthAndTokenCount) {
  for (const std::int64_t hidden : widths)
    for (const std::int64_t tokens : row_counts) {
      const auto h = static_cast<std::size_t>(hidden), t = static_cast<std::size_t>(tokens);
      oracle::CombineInput in{h,  3, normal((3 * t + 1) * h, 5), std::vector<std::int32_t>(3 * t), normal(3 * t, 6),
                              {}, {}};
      for (std::size_t slot = 0; slot < 3 * t; ++slot)
        in.slot_rows[slot] = static_cast<std::int32_t>(slot * 7 % (3 * t));
      check({in});
    }
}

TEST_P(CombineTest, SlotsWithoutARowAndUnweightedRows) {
  // -1: the slot's expert is elsewhere; 4 and 99: its row was dropped.
  check({{20, 4, normal(4 * 20, 7), {0, -1, 3, 4, -1, -1, 99, -7}, normal(8, 8), {}, {}}});
  check({{20, 2, normal(4 * 20, 9), {0, 2, 3, -1}, {}, {}, {}}});
}

TEST_P(CombineTest, ZeroWeightRowsAreReadOrSkippedAsAsked) {
  oracle::CombineInput in{17, 2, normal(2 * 17, 10), {0, 1}, {0, 0.5}, {}, {}};
  std::fill_n(in.rows.begin(), 17, std::nan(""));
  in.skip_zero_weights = true;
  check({in});
  const GuardedTensor rows = upload(device(), DType::f32, {2, 17}, in.rows),
                      slot_rows(device(), DType::i32, {2}, in.slot_rows);
  const GuardedTensor weights = upload(device(), DType::f32, {1, 2}, in.weights), out(device(), DType::f32, {1, 17});
  combine::enqueue(device().stream, combine_args(rows, slot_rows, weights, {}, {}, false, out));
  for (const double value : out.values()) EXPECT_TRUE(std::isnan(value));
}

TEST_P(CombineTest, ProductsAndSumsAreRoundedOneByOne) {
  // The reference is f32 arithmetic without fused multiply-add. Every number of lanes gives these bits.
  constexpr std::size_t hidden = 65, top_k = 8;
  const std::vector<double> rows = normal(top_k * hidden, 11), weights = normal(top_k, 12);
  const GuardedTensor device_rows = upload(device(), DType::f32, {top_k, hidden}, rows);
  const GuardedTensor slot_rows(device(), DType::i32, {top_k}, std::vector<std::int32_t>{7, 6, 5, 4, 3, 2, 1, 0});
  const GuardedTensor device_weights = upload(device(), DType::f32, {1, top_k}, weights);
  std::vector<float> expected(hidden);
  for (std::size_t h = 0; h < hidden; ++h)
    for (std::size_t k = 0; k < top_k; ++k) {
      const volatile float product =
          static_cast<float>(weights[k]) * static_cast<float>(rows[(top_k - 1 - k) * hidden + h]);
      expected[h] += product;
    }
  for (const std::int32_t lanes : lane_choices) {
    const GuardedTensor out(device(), DType::f32, {1, hidden});
    combine::enqueue(device().stream, combine_args(device_rows, slot_rows, device_weights, {}, {}, false, out),
                     {lanes});
    EXPECT_EQ(out.read<float>(), expected) << "lanes = " << lanes;
  }
}

TEST_P(CombineTest, RandomShapes) {
  std::mt19937_64 engine(13);
  for (int i = 0; i < 24; ++i) {
    const std::size_t hidden = engine() % 100 + 1, top_k = engine() % 6 + 1, tokens = engine() % 5 + 1,
                      rows = engine() % 20 + 1;
    oracle::CombineInput in{hidden,
                            top_k,
                            normal(rows * hidden, engine()),
                            std::vector<std::int32_t>(tokens * top_k),
                            normal(tokens * top_k, engine()),
                            {},
                            {}};
    for (std::int32_t& row : in.slot_rows) row = static_cast<std::int32_t>(engine() % (rows + 2)) - 1;
    if (engine() % 2 == 0) in.shared = normal(tokens * hidden, engine());
    if (!in.shared.empty() && engine() % 2 == 0) in.shared_gate = normal(tokens, engine());
    check({in});
  }
}

TEST_P(CombineTest, WeightsOfEveryType) {
  for (const DType weights : {DType::f16, DType::bf16})
    check({{33, 2, normal(7 * 33, 20), {6, 0, 3, -1, 5, 1}, normal(6, 21), {}, {}}, DType::f32, DType::f32, weights});
}

TEST_P(CombineTest, ColumnSlotsBiasAndResidual) {
  oracle::CombineInput in{33, 2, normal(4 * 33, 30), {1, -1, 3, 0, 2, 9}, normal(6, 31), normal(3 * 33, 32), {}};
  in.column_slots = true;
  check({in});
  in.residual = normal(3 * 33, 33);
  check({in});
  in.bias = normal(5 * 33, 34);
  in.bias_ids = {4, 0, 1, 1, 2, 3};
  check({in});
  in.column_slots = false;
  in.weights.clear();
  check({in});
}

TEST_P(CombineTest, ABiasIdThatDoesNotExistAddsNone) {
  const GuardedTensor rows = upload(device(), DType::f32, {2, 1}, {3, 5}),
                      bias = upload(device(), DType::f32, {2, 1}, {10, 20});
  const GuardedTensor slot_rows = upload(device(), DType::i32, {3}, {0, 1, -1}),
                      ids = upload(device(), DType::i32, {1, 3}, {-1, 2, 1});
  for (const std::int32_t lanes : lane_choices) {
    const GuardedTensor out(device(), DType::f32, {1, 1});
    combine::Args args = combine_args(rows, slot_rows, {}, {}, {}, false, out);
    args.bias = bias;
    args.bias_ids = ids;
    combine::enqueue(device().stream, args, {lanes});
    EXPECT_EQ(out.values(), std::vector<double>{28});
  }
}

TEST_P(CombineTest, RowsOfCodesTimesTheirScales) {
  std::mt19937_64 random(5);
  std::uniform_int_distribution<int> code(-127, 127);
  const std::vector<double> weights = rounded(DType::f32, normal(6, 1)), slots = {2, 0, 1, 1, -1, 2};
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const std::int64_t hidden : {8, 24, 136}) {
      const auto width = static_cast<std::size_t>(hidden);
      std::vector<double> codes, scales = rounded(dtype, normal(3 * width / 8, 2)), expected(3 * width);
      for (std::size_t i = 0; i < 3 * width; ++i) codes.push_back(code(random));
      std::vector<double> rows;
      for (std::size_t i = 0; i < codes.size(); ++i)
        rows.push_back(static_cast<float>(codes[i]) * static_cast<float>(scales[i / 8]));
      rows = rounded(dtype, rows);  // the products have the scales' type
      for (std::size_t slot = 0; slot < slots.size(); ++slot)
        for (std::size_t h = 0; h < width && slots[slot] >= 0; ++h)
          expected[slot / 2 * width + h] += weights[slot] * rows[static_cast<std::size_t>(slots[slot]) * width + h];
      for (const std::int32_t lanes : lane_choices) {
        const GuardedTensor in = upload(device(), DType::i8, {3, hidden}, codes),
                            slot_rows = upload(device(), DType::i32, {6}, slots),
                            factors = upload(device(), DType::f32, {3, 2}, weights),
                            scale = upload(device(), dtype, {3, hidden / 8}, scales),
                            out(device(), DType::f32, {3, hidden});
        combine::Args args = combine_args(in, slot_rows, factors, {}, {}, false, out);
        args.rows_scale = scale;
        combine::enqueue(device().stream, args, {lanes});
        EXPECT_LE(relative_error(out.values(), expected), 1e-6) << name(dtype) << ", width " << hidden;
      }
    }
}

TEST_P(CombineTest, RejectsWrongShapes) {
  const GuardedTensor rows(device(), DType::f32, {6, 5}), slots(device(), DType::i32, {6}),
      weights(device(), DType::f32, {3, 2});
  const GuardedTensor out(device(), DType::f32, {3, 5}), narrow(device(), DType::f32, {3, 4}),
      gate(device(), DType::f32, {3, 1});
  const GuardedTensor five(device(), DType::i32, {5});
  const auto reason = [&](const combine::Args& args) { return combine::reject(args, {}, device().record()); };
  EXPECT_EQ(reason(combine_args(rows, slots, weights, out, gate, false, out)), "");
  EXPECT_THAT(reason(combine_args(narrow, slots, weights, {}, {}, false, out)),
              testing::HasSubstr("float [R, 5], got f32[3, 4]"));
  EXPECT_THAT(reason(combine_args(rows, five, weights, {}, {}, false, out)), testing::HasSubstr("T = 3, got i32[5]"));
  EXPECT_THAT(reason(combine_args(rows, slots, narrow, {}, {}, false, out)),
              testing::HasSubstr("expected float [3, 2], got f32[3, 4]"));
  EXPECT_THAT(reason(combine_args(rows, slots, weights, narrow, {}, false, out)),
              testing::HasSubstr("float [3, 5], got f32[3, 4]"));
  EXPECT_THAT(reason(combine_args(rows, slots, weights, {}, gate, false, out)), testing::HasSubstr("needs shared"));
  EXPECT_THAT(reason(combine_args(rows, slots, weights, out, weights, false, out)),
              testing::HasSubstr("f32[3, 1], got f32[3, 2]"));
  combine::Args args = combine_args(rows, slots, weights, {}, {}, false, out);
  args.residual = out;
  EXPECT_THAT(reason(args), testing::HasSubstr("residual: needs shared"));
  args.residual = {};
  args.bias = rows;
  EXPECT_THAT(reason(args), testing::HasSubstr("bias, bias_ids: expected both or neither"));
  args.bias_ids = slots;
  EXPECT_THAT(reason(args), testing::HasSubstr("bias_ids: expected i32[3, 2], got i32[6]"));
  args = combine_args(rows, slots, {}, out, {}, false, out);
  args.shared_token = 1;
  EXPECT_THAT(reason(args), testing::HasSubstr("shared_token: 1 needs slot_ends"));
  args.slot_ends = slots;
  EXPECT_THAT(reason(args), testing::HasSubstr("slot_ends: expected i32[3], got i32[6]"));
  EXPECT_THROW(combine::enqueue(device().stream, combine_args(rows, five, weights, {}, {}, false, out)), Error);
}

}  // namespace
}  // namespace moecl::test
