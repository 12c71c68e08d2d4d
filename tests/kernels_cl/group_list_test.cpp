#include <moecl/error.hpp>
#include <moecl/fault.hpp>
#include <moecl/group_list.hpp>

#include <gmock/gmock.h>

#include <numeric>
#include <random>

#include "tests/devices.hpp"
#include "tests/oracle/edge_cases.hpp"

namespace moecl::test {
namespace {

using group_list::Kind;
using Ints = std::vector<std::int32_t>;

class GroupListTest : public OnEveryDevice {
 protected:
  static GuardedTensor list_tensor(const TestDevice& device, DType dtype, Kind kind,
                                   const std::vector<double>& entries) {
    const auto count = static_cast<std::int64_t>(entries.size());
    if (kind == Kind::pairs) return upload(device, dtype, {count / 2, 2}, entries);
    return upload(device, dtype, {count}, entries);
  }

  /// Reads the list as i32 and as i64, with every choice of lanes.
  void read(const std::vector<double>& entries, Kind kind, std::int64_t rows, const Ints& row_ends, Ints fault = {},
            bool all_rows = false) {
    fault.resize(4);
    for (const DType dtype : {DType::i32, DType::i64})
      for (const std::int32_t lanes : lane_choices) {
        SCOPED_TRACE(testing::Message() << testing::PrintToString(entries) << " of kind " << static_cast<int>(kind)
                                        << " in " << name(dtype) << ", lanes = " << lanes);
        const GuardedTensor list = list_tensor(device(), dtype, kind, entries);
        const GuardedTensor ends(device(), DType::i32, {static_cast<std::int64_t>(row_ends.size())}),
            word(device(), DType::i32, {4}, Ints(4));
        group_list::enqueue(device().stream, group_list::Read{list, kind, rows, all_rows, ends, word}, {lanes});
        EXPECT_EQ(ends.read<std::int32_t>(), row_ends);
        EXPECT_EQ(word.read<std::int32_t>(), fault);
      }
  }

  /// Writes a list over -7s. Its input are counts, and then the same counts as row ends.
  void write(const Ints& counts, Kind kind, std::int32_t first_expert, const std::vector<double>& expected) {
    Ints ends(counts.size());
    std::partial_sum(counts.begin(), counts.end(), ends.begin());
    const auto experts = static_cast<std::int64_t>(counts.size());
    const GuardedTensor device_counts(device(), DType::i32, {experts}, counts),
        device_ends(device(), DType::i32, {experts}, ends);
    for (const DType dtype : {DType::i32, DType::i64})
      for (const std::int32_t lanes : lane_choices)
        for (const bool cumulative : {false, true}) {
          SCOPED_TRACE(testing::Message() << testing::PrintToString(counts) << " as kind " << static_cast<int>(kind)
                                          << " in " << name(dtype) << ", lanes = " << lanes);
          const GuardedTensor list = list_tensor(device(), dtype, kind, std::vector<double>(expected.size(), -7));
          group_list::Write args{{}, {}, kind, first_expert, list};
          (cumulative ? args.row_ends : args.counts) = cumulative ? device_ends : device_counts;
          group_list::enqueue(device().stream, args, {lanes});
          EXPECT_EQ(list.values(), expected);
          list.check_guards();
        }
  }
};
MOECL_ON_EVERY_DEVICE(GroupListTest);

constexpr std::int32_t code(FaultCode fault) { return static_cast<std::int32_t>(fault); }

TEST_P(GroupListTest, ReadsEveryKind) {
  read({0, 3, 3, 7}, Kind::cumsum, 7, {0, 3, 3, 7}, {}, true);
  read({0, 3, 0, 4}, Kind::counts, 9, {0, 3, 3, 7});
  read({1, 3, 3, 4}, Kind::pairs, 7, {0, 3, 3, 7, 7}, {}, true);
  read({0, 2, 2, 0, 4, 1}, Kind::pairs, 7, {2, 2, 2, 2, 3});
  read({0}, Kind::counts, 0, {0}, {}, true);
}

TEST_P(GroupListTest, AZeroPairEndsTheList) {
  read({1, 3, 0, 0, 2, 5, -9, -9}, Kind::pairs, 7, {0, 3, 3});
  read({0, 0, 77, 77}, Kind::pairs, 7, {0, 0, 0});
  read({}, Kind::pairs, 7, {0, 0, 0});
}

TEST_P(GroupListTest, FaultsNameTheFirstWrongEntryAndNothingLeadsOutside) {
  read({2, -3, 4, -1}, Kind::counts, 9, {2, 2, 6, 6}, {code(FaultCode::group_count_negative), 1, -3});
  read({2, 5, 3, 6}, Kind::cumsum, 9, {2, 5, 5, 8}, {code(FaultCode::group_count_negative), 2, -2});
  read({0, 1, 4, 2}, Kind::pairs, 9, {1, 1, 1, 1}, {code(FaultCode::group_id_out_of_order), 1, 4});
  read({2, 1, 1, 2}, Kind::pairs, 9, {0, 0, 1, 1}, {code(FaultCode::group_id_out_of_order), 1, 1});
  read({-1, 1, 1, 2}, Kind::pairs, 9, {0, 2, 2, 2}, {code(FaultCode::group_id_out_of_order), 0, -1});
  read({1, 1, 3, -2}, Kind::pairs, 9, {0, 1, 1, 1}, {code(FaultCode::group_count_negative), 1, -2});
  read({4, 4, 4}, Kind::counts, 9, {4, 8, 9}, {code(FaultCode::group_sum_too_large), 2, 9});
  read({4, 8, 2e9}, Kind::cumsum, 9, {4, 8, 9}, {code(FaultCode::group_sum_too_large), 2, 9});
  read({2e9, 2e9, 2e9}, Kind::counts, 2147483646, {2000000000, 2147483646, 2147483646},
       {code(FaultCode::group_sum_too_large), 1, 2147483646});
  read({4, 4}, Kind::counts, 9, {4, 8}, {code(FaultCode::group_sum_too_small), 8, 9}, true);
}

TEST_P(GroupListTest, GroupsHaveRoomForSoMany) {
  const auto read_with_room = [&](const std::vector<double>& counts) {
    const GuardedTensor list = list_tensor(device(), DType::i32, Kind::counts, counts);
    const GuardedTensor ends(device(), DType::i32, {3}), word(device(), DType::i32, {4}, Ints(4));
    group_list::Read args{list, Kind::counts, 12, false, ends, word};
    args.rows_per_group = 4;
    group_list::enqueue(device().stream, args);
    Ints told = ends.read<std::int32_t>();
    for (const std::int32_t part : word.read<std::int32_t>()) told.push_back(part);
    return told;
  };
  EXPECT_EQ(read_with_room({4, 0, 3}), (Ints{4, 4, 7, 0, 0, 0, 0}));
  EXPECT_EQ(read_with_room({1, 5, 9}), (Ints{1, 5, 9, code(FaultCode::group_too_large), 1, 5, 0}));
}

TEST_P(GroupListTest, EntriesPast32BitsAreInFault) {
  const double huge = 4611686018427387904.0;  // 2^62
  for (const Kind kind : {Kind::cumsum, Kind::counts}) {
    const GuardedTensor list = list_tensor(device(), DType::i64, kind, {1, huge, huge, -huge}),
                        ends(device(), DType::i32, {4}), word(device(), DType::i32, {4}, Ints(4));
    group_list::enqueue(device().stream, group_list::Read{list, kind, 5, false, ends, word});
    EXPECT_EQ(ends.read<std::int32_t>(), (Ints{1, 5, 5, 5}));
    EXPECT_EQ(word.read<std::int32_t>()[1], 3);
  }
}

TEST_P(GroupListTest, WritesEveryKind) {
  write({0, 3, 0, 4}, Kind::cumsum, 0, {0, 3, 3, 7});
  write({0, 3, 0, 4}, Kind::counts, 0, {0, 3, 0, 4});
  write({0, 3, 0, 4}, Kind::pairs, 10, {11, 3, 13, 4, 0, 0, -7, -7, -7, -7});
  write({2, 3}, Kind::pairs, 0, {0, 2, 1, 3});
  write({0, 0}, Kind::pairs, 5, {0, 0, -7, -7});
}

TEST_P(GroupListTest, RandomLists) {
  std::mt19937_64 engine(1);
  for (int i = 0; i < 8; ++i) {
    const std::size_t experts = 1 + engine() % 300;
    Ints counts(experts), ends(experts);
    for (std::int32_t& count : counts) count = engine() % 3 == 0 ? 0 : static_cast<std::int32_t>(engine() % 100'000);
    std::partial_sum(counts.begin(), counts.end(), ends.begin());
    std::vector<double> pairs;
    for (std::size_t e = 0; e < experts; ++e)
      if (counts[e] != 0) pairs.insert(pairs.end(), {static_cast<double>(e), static_cast<double>(counts[e])});
    read({ends.begin(), ends.end()}, Kind::cumsum, ends.back(), ends, {}, true);
    read({counts.begin(), counts.end()}, Kind::counts, ends.back(), ends, {}, true);
    read(pairs, Kind::pairs, ends.back(), ends, {}, true);
    write(counts, Kind::cumsum, 0, {ends.begin(), ends.end()});
    write(counts, Kind::counts, 0, {counts.begin(), counts.end()});
    if (pairs.size() < 2 * experts) pairs.insert(pairs.end(), {0, 0});
    pairs.resize(2 * experts, -7);
    write(counts, Kind::pairs, 0, pairs);
  }
}

TEST_P(GroupListTest, RejectsWrongShapes) {
  const GuardedTensor four(device(), DType::i32, {4}), five(device(), DType::i32, {5}),
      pairs(device(), DType::i64, {3, 2}), reals(device(), DType::f32, {4});
  const auto read = [&](const group_list::Read& args) { return group_list::reject(args, {}, device().record()); };
  const auto write = [&](const group_list::Write& args) { return group_list::reject(args, {}, device().record()); };
  EXPECT_EQ(read({four, Kind::counts, 9, false, four, four}), "");
  EXPECT_EQ(read({pairs, Kind::pairs, 9, false, four, {}}), "");
  EXPECT_THAT(read({five, Kind::counts, 9, false, four, {}}), testing::HasSubstr("i32 or i64[4], got i32[5]"));
  EXPECT_THAT(read({reals, Kind::counts, 9, false, four, {}}), testing::HasSubstr("got f32[4]"));
  EXPECT_THAT(read({four, Kind::pairs, 9, false, four, {}}), testing::HasSubstr("i32 or i64[n, 2], got i32[4]"));
  EXPECT_THAT(read({four, Kind::counts, -1, false, four, {}}), testing::HasSubstr("rows: -1 is outside"));
  EXPECT_THAT(read({four, Kind::counts, 9, false, four, five}), testing::HasSubstr("fault: expected i32[4]"));
  EXPECT_EQ(write({four, {}, Kind::counts, 0, four}), "");
  EXPECT_THAT(write({four, {}, Kind::pairs, 0, pairs}), testing::HasSubstr("i32 or i64[>= 4, 2], got i64[3, 2]"));
  EXPECT_THAT(write({four, four, Kind::counts, 0, four}), testing::HasSubstr("expected one of the two"));
  EXPECT_THROW(group_list::enqueue(device().stream, group_list::Write{{}, {}, Kind::counts, 0, four}), Error);
}

}  // namespace
}  // namespace moecl::test
