#include <moecl/error.hpp>
#include <moecl/fault.hpp>
#include <moecl/index_vectors.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/devices.hpp"

namespace moecl::test {
namespace {

using Ints = std::vector<std::int32_t>;
constexpr auto out_of_range = static_cast<std::int32_t>(FaultCode::index_out_of_range);

class IndexVectorsTest : public OnEveryDevice {
 protected:
  GuardedTensor ints(const Ints& values) const {
    return {device(), DType::i32, {static_cast<std::int64_t>(values.size())}, values};
  }
  GuardedTensor out(std::size_t count) const { return {device(), DType::i32, {static_cast<std::int64_t>(count)}}; }
  /// A random permutation of [0, count).
  static Ints shuffled(std::size_t count, std::uint64_t seed) {
    Ints values(count);
    std::iota(values.begin(), values.end(), 0);
    std::shuffle(values.begin(), values.end(), std::mt19937_64(seed));
    return values;
  }
};
MOECL_ON_EVERY_DEVICE(IndexVectorsTest);

TEST_P(IndexVectorsTest, NarrowChecksTheRange) {
  const std::vector<double> values = {3, 0, -1, 9, 10, 7};
  for (const DType dtype : {DType::i32, DType::i64}) {
    const GuardedTensor from = upload(device(), dtype, {2, 3}, values), to = out(6), fault = ints({0, 0, 0, 0});
    index_vectors::enqueue(device().stream, index_vectors::Narrow{from, 0, 10, -1, {}, to, fault});
    EXPECT_EQ(to.read<std::int32_t>(), (Ints{3, 0, -1, 9, -1, 7}));
    EXPECT_THAT(fault.read<std::int32_t>(), testing::AnyOf(Ints{out_of_range, 2, -1, 0}, Ints{out_of_range, 4, 10, 0}));
    index_vectors::enqueue(device().stream, index_vectors::Narrow{from, -1, 11, 99, {}, to, {}});
    EXPECT_EQ(to.read<std::int32_t>(), (Ints{3, 0, -1, 9, 10, 7}));
  }
  const GuardedTensor huge = upload(device(), DType::i64, {2}, {4294967296.0 + 5, 5}), to = out(2),
                      fault = ints({0, 0, 0, 0});
  index_vectors::enqueue(device().stream, index_vectors::Narrow{huge, 0, 10, -1, {}, to, fault});
  EXPECT_EQ(to.read<std::int32_t>(), (Ints{-1, 5}));
  EXPECT_EQ(fault.read<std::int32_t>(), (Ints{out_of_range, 0, 2147483647, 0}));
}

TEST_P(IndexVectorsTest, NarrowLeavesOutWhatIsPastTheRows) {
  const GuardedTensor from = ints({3, 0, 77, 5}), ends = ints({1, 2}), to = out(4), fault = ints({0, 0, 0, 0});
  index_vectors::enqueue(device().stream, index_vectors::Narrow{from, 0, 10, 10, ends, to, fault});
  EXPECT_EQ(to.read<std::int32_t>(), (Ints{3, 0, 10, 10}));
  EXPECT_EQ(fault.read<std::int32_t>(), Ints(4));
}

TEST_P(IndexVectorsTest, ColumnOrder) {
  for (const std::int64_t tokens : {0, 1, 65})
    for (const std::int64_t top_k : {1, 3}) {
      const GuardedTensor out(device(), DType::i32, {tokens, top_k});
      index_vectors::enqueue(device().stream, index_vectors::ColumnOrder{out});
      Ints expected;
      for (std::int64_t i = 0; i < tokens; ++i)
        for (std::int64_t k = 0; k < top_k; ++k) expected.push_back(static_cast<std::int32_t>(k * tokens + i));
      EXPECT_EQ(out.read<std::int32_t>(), expected);
    }
}

TEST_P(IndexVectorsTest, SortedRouting) {
  constexpr std::size_t tokens = 37, slots = tokens * 3;
  const Ints sorted = shuffled(slots, 1), row_idx = shuffled(slots, 2), ids = shuffled(slots, 3);
  const GuardedTensor source_row = out(slots), expanded_row_idx = out(slots), expanded_expert_idx = out(slots);
  index_vectors::enqueue(
      device().stream,
      index_vectors::SortedRouting{
          ints(sorted), ints(ids), ints(row_idx), tokens, source_row, expanded_row_idx, expanded_expert_idx, {}});
  Ints sources, places(slots), experts;
  for (std::size_t j = 0; j < slots; ++j) {
    const auto slot = static_cast<std::size_t>(sorted[j]);
    sources.push_back(row_idx[slot] % static_cast<std::int32_t>(tokens));
    places[static_cast<std::size_t>(row_idx[slot])] = static_cast<std::int32_t>(j);
    experts.push_back(ids[slot]);
  }
  EXPECT_EQ(source_row.read<std::int32_t>(), sources);
  EXPECT_EQ(expanded_row_idx.read<std::int32_t>(), places);
  EXPECT_EQ(expanded_expert_idx.read<std::int32_t>(), experts);
}

TEST_P(IndexVectorsTest, SortedRoutingLeavesOutPlacesThatDoNotExist) {
  const GuardedTensor source_row = out(3), expanded_row_idx = ints({-7, -7, -7}), expanded_expert_idx = out(3),
                      fault = ints({0, 0, 0, 0});
  index_vectors::enqueue(device().stream,
                         index_vectors::SortedRouting{ints({2, 0, 1}), ints({5, 6, 4}), ints({1, 3, 0}), 3, source_row,
                                                      expanded_row_idx, expanded_expert_idx, fault});
  EXPECT_EQ(source_row.read<std::int32_t>(), (Ints{0, 1, -1}));
  EXPECT_EQ(expanded_row_idx.read<std::int32_t>(), (Ints{0, 1, -7}));
  EXPECT_EQ(expanded_expert_idx.read<std::int32_t>(), (Ints{4, 5, 6}));
  EXPECT_EQ(fault.read<std::int32_t>(), (Ints{out_of_range, 1, 3, 0}));
}

TEST_P(IndexVectorsTest, HistogramLeavesOutOtherKeys) {
  std::mt19937_64 random(7);
  for (const DType dtype : {DType::i32, DType::i64})
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1000}}) {
      std::vector<double> keys(count), expected(5);
      for (double& key : keys) key = static_cast<double>(static_cast<int>(random() % 9) - 2);
      for (const double key : keys)
        if (key >= 0 && key < 5) ++expected[static_cast<std::size_t>(key)];
      const GuardedTensor from = upload(device(), dtype, {static_cast<std::int64_t>(count), 1}, keys), counts = out(5);
      index_vectors::enqueue(device().stream, index_vectors::Histogram{from, counts});
      EXPECT_EQ(counts.values(), expected);
    }
  const GuardedTensor far = upload(device(), DType::i64, {2}, {4294967296.0 + 1, 1}), counts = out(2);
  index_vectors::enqueue(device().stream, index_vectors::Histogram{far, counts});
  EXPECT_EQ(counts.read<std::int32_t>(), (Ints{0, 1}));
}

TEST_P(IndexVectorsTest, GroupOfRow) {
  const GuardedTensor groups = out(9);
  index_vectors::enqueue(device().stream, index_vectors::GroupOfRow{ints({0, 2, 2, 5, 6, 6}), 4, groups});
  EXPECT_EQ(groups.read<std::int32_t>(), (Ints{1, 1, 3, 3, 3, 0, -1, -1, -1}));
}

TEST_P(IndexVectorsTest, KeyEnds) {
  const GuardedTensor sorted = ints({0, 0, 2, 3, 3, 3, 9}), ends = out(6);
  index_vectors::enqueue(device().stream, index_vectors::KeyEnds{sorted, {}, ends});
  EXPECT_EQ(ends.read<std::int32_t>(), (Ints{2, 2, 3, 6, 6, 6}));
  const GuardedTensor keys = ints({3, 0, 3, 1, 0}), order = ints({1, 4, 3, 0, 2}), four = out(4);
  index_vectors::enqueue(device().stream, index_vectors::KeyEnds{keys, order, four});
  EXPECT_EQ(four.read<std::int32_t>(), (Ints{2, 3, 3, 5}));
  const GuardedTensor none = ints({}), two = out(2);
  index_vectors::enqueue(device().stream, index_vectors::KeyEnds{none, {}, two});
  EXPECT_EQ(two.read<std::int32_t>(), (Ints{0, 0}));
}

TEST_P(IndexVectorsTest, WidenKeepsTheSign) {
  for (const std::size_t count : {std::size_t{0}, std::size_t{3}, std::size_t{130}}) {
    std::vector<double> values(count, -1);
    if (count > 1) values[1] = 2147483647;
    const GuardedTensor from = upload(device(), DType::i32, {static_cast<std::int64_t>(count)}, values),
                        to(device(), DType::i64, {static_cast<std::int64_t>(count)});
    index_vectors::enqueue(device().stream, index_vectors::Widen{from, to});
    EXPECT_EQ(to.values(), values);
  }
}

TEST_P(IndexVectorsTest, KeyCountsAddUp) {
  const GuardedTensor counts = upload(device(), DType::i64, {4}, {0, 4294967296.0, 0, 7});
  index_vectors::enqueue(device().stream, index_vectors::KeyCounts{ints({3, 1, -1, 1, 4, 3, 3}), counts});
  EXPECT_EQ(counts.read<std::int64_t>(), (std::vector<std::int64_t>{0, 4294967298, 0, 10}));
  index_vectors::enqueue(device().stream, index_vectors::KeyCounts{ints({}), counts});
  EXPECT_EQ(counts.read<std::int64_t>(), (std::vector<std::int64_t>{0, 4294967298, 0, 10}));
  EXPECT_THAT(index_vectors::reject(index_vectors::KeyCounts{ints({1}), ints({0})}),
              testing::HasSubstr("counts: expected contiguous i64[E], got i32[1]"));
}

TEST_P(IndexVectorsTest, RowCountsAddUp) {
  for (const DType dtype : {DType::i32, DType::i64}) {
    const GuardedTensor counts(device(), dtype, {4});
    index_vectors::enqueue(device().stream, index_vectors::RowCounts{ints({2, 2, 7, 8}), counts});
    EXPECT_EQ(counts.values(), (std::vector<double>{2, 0, 5, 1}));
    index_vectors::enqueue(device().stream, index_vectors::RowCounts{ints({0, 3, 3, 4}), counts, true});
    EXPECT_EQ(counts.values(), (std::vector<double>{2, 3, 5, 2}));
  }
}

TEST_P(IndexVectorsTest, ValidRowsOfBothLayouts) {
  const GuardedTensor ends = ints({2, 2, 5});
  const auto valid = [&](std::int64_t rows, std::int64_t rows_per_expert) {
    const GuardedTensor slots(device(), DType::i32, {rows});
    index_vectors::enqueue(device().stream, index_vectors::ValidRows{ends, rows_per_expert, slots});
    return slots.values();
  };
  EXPECT_EQ(valid(7, 0), (std::vector<double>{0, 1, 2, 3, 4, -1, -1}));
  EXPECT_EQ(valid(12, 4), (std::vector<double>{0, 1, -1, -1, -1, -1, -1, -1, 8, 9, 10, -1}));
  EXPECT_THAT(index_vectors::reject(index_vectors::ValidRows{ends, 4, ends}),
              testing::HasSubstr("slots: 3 rows of 3 experts with room for 4 each"));
}

TEST_P(IndexVectorsTest, RejectsWrongShapes) {
  const GuardedTensor four = ints({0, 1, 2, 3}), three = ints({0, 1, 2}), reals(device(), DType::f32, {4});
  const auto reason = [](const auto& args) { return index_vectors::reject(args); };
  EXPECT_EQ(reason(index_vectors::Narrow{four, 0, 4, -1, three, four, four}), "");
  EXPECT_THAT(reason(index_vectors::Narrow{reals, 0, 4, -1, {}, four, {}}), testing::HasSubstr("got f32[4]"));
  EXPECT_THAT(reason(index_vectors::Narrow{four, 0, 4, -1, {}, three, {}}),
              testing::HasSubstr("to: expected i32[4], got i32[3]"));
  EXPECT_THAT(reason(index_vectors::ColumnOrder{four}), testing::HasSubstr("i32[N, K], got i32[4]"));
  EXPECT_EQ(reason(index_vectors::SortedRouting{four, four, four, 2, four, four, four, {}}), "");
  EXPECT_THAT(reason(index_vectors::SortedRouting{four, four, four, 3, four, four, four, {}}),
              testing::HasSubstr("4 slots are not so many for each of 3"));
  EXPECT_THAT(reason(index_vectors::SortedRouting{four, three, four, 2, four, four, four, {}}),
              testing::HasSubstr("ids: expected 4 elements of i32, got i32[3]"));
  EXPECT_EQ(reason(index_vectors::Histogram{four, three}), "");
  EXPECT_THAT(reason(index_vectors::Histogram{reals, four}),
              testing::HasSubstr("keys: expected contiguous i32 or i64, got f32[4]"));
  EXPECT_THAT(reason(index_vectors::Histogram{four, reals}), testing::HasSubstr("counts: expected i32[4], got f32[4]"));
  EXPECT_THAT(reason(index_vectors::GroupOfRow{four, 0, four}), testing::HasSubstr("modulus: 0 is not positive"));
  EXPECT_THAT(reason(index_vectors::KeyEnds{four, three, four}), testing::HasSubstr("order: expected i32[4]"));
  EXPECT_THAT(reason(index_vectors::Widen{four, four}), testing::HasSubstr("to: expected i64[4], got i32[4]"));
  EXPECT_THAT(reason(index_vectors::RowCounts{four, reals}), testing::HasSubstr("counts: expected i32 or i64[4]"));
  EXPECT_THAT(reason(index_vectors::RowCounts{four, three}), testing::HasSubstr("got i32[3]"));
  EXPECT_THROW(index_vectors::enqueue(device().stream, index_vectors::ColumnOrder{four}), Error);
}

}  // namespace
}  // namespace moecl::test
