#include "tests/cases/expert_sort.hpp"

#include <moecl/error.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "tests/kernels_cl/operator_test.hpp"

namespace moecl::test {
namespace {

using Ints = std::vector<std::int32_t>;

expert_sort::Args sort_args(const TensorView& ids, std::int32_t first, std::int32_t end, std::int32_t total,
                            std::int64_t rows_per_expert, const TensorView& row_ends, const TensorView& sorted_slots,
                            const TensorView& slot_rows, const TensorView& fault = {}) {
  expert_sort::Args args;
  args.ids = ids;
  args.first_expert = first;
  args.end_expert = end;
  args.total_experts = total;
  args.rows_per_expert = rows_per_expert;
  args.row_ends = row_ends;
  args.sorted_slots = sorted_slots;
  args.slot_rows = slot_rows;
  args.fault = fault;
  return args;
}

class ExpertSortTest : public OperatorTest<ExpertSortCase> {
 protected:
  void check(const Ints& ids, ExpertSortCase of) const {
    of.ids = ids;
    OperatorTest::check(of);
  }

  Ints random_ids(const ExpertSortCase& c, std::uint64_t seed, std::int32_t low, std::int32_t high) {
    std::mt19937_64 engine(seed);
    Ints ids(static_cast<std::size_t>(c.tokens * c.top_k));
    for (std::int32_t& id : ids)
      id = low + static_cast<std::int32_t>(engine() % static_cast<std::uint64_t>(high - low));
    return ids;
  }
};
MOECL_ON_EVERY_DEVICE(ExpertSortTest);

TEST_P(ExpertSortTest, SortsFewAndManySlots) {
  for (const ExpertSortCase& c : {ExpertSortCase{1, 1, 0, 1, 1}, ExpertSortCase{1, 8, 0, 128, 128},
                                  ExpertSortCase{16, 8, 0, 128, 128}, ExpertSortCase{65, 1, 0, 4096, 4096},
                                  ExpertSortCase{8191, 3, 0, 60, 60}, ExpertSortCase{100'003, 1, 0, 256, 256}})
    check(random_ids(c, 1, 0, c.total), c);
}

TEST_P(ExpertSortTest, SharedEdgeCases) {
  for (const Routing& routing : routings()) {
    SCOPED_TRACE(routing.name);
    const ExpertSortCase c{routing.tokens, routing.top_k, 0, routing.experts, routing.experts};
    check(routing.ids, c);
    // Only a range of the experts, as one of several ranks sees it.
    if (routing.experts > 2) check(routing.ids, {c.tokens, c.top_k, 1, routing.experts / 2 + 1, routing.experts});
    check(routing.ids, {c.tokens, c.top_k, 0, c.end, c.total, std::max<std::int64_t>(routing.tokens, 1)});
  }
}

TEST_P(ExpertSortTest, NoExpertIsInactiveAndWrongIdsAreReported) {
  check({-1, 2, -1, 0, -1, -1}, {3, 2, 0, 4, 4});
  check({0, 4, -2, 1}, {2, 2, 0, 4, 4});
  check({0, 1, 3, std::numeric_limits<std::int32_t>::min()}, {2, 2, 2, 4, 4});
  check({std::numeric_limits<std::int32_t>::max(), 1, 3, 1}, {2, 2, 0, 4, 4});
  // A long input has many chunks. The fault word names the lowest wrong slot of all chunks.
  const ExpertSortCase c{50'000, 1, 0, 16, 16};
  Ints ids = random_ids(c, 2, 0, 16);
  ids[49'999] = 16;
  check(ids, c);
  ids[20'001] = -7;
  check(ids, c);
}

TEST_P(ExpertSortTest, RowsOverCapacityAreDroppedAndReported) {
  check({1, 1, 0, 1, 1}, {5, 1, 0, 2, 2, 2});
  check({1, 5, 1, 1, 1}, {5, 1, 0, 2, 4, 1});
  const ExpertSortCase c{30'000, 1, 0, 7, 7, 4290};  // about 4286 each
  check(random_ids(c, 3, 0, 7), c);
  // If the caller asks for dropping, only wrong ids are faults.
  check({1, 1, 0, 1, 1}, {5, 1, 0, 2, 2, 2, true});
  check({1, 1, 1, 7, 1}, {5, 1, 0, 2, 2, 2, true});
  Ints ids = random_ids(c, 3, 0, 7);
  ids[29'000] = 7;
  check(ids, {30'000, 1, 0, 7, 7, 4000, true});
}

TEST_P(ExpertSortTest, AnEarlierFaultStays) {
  const Ints earlier = {2, 77, 5, 0};
  const GuardedTensor ids(device(), DType::i32, {2, 1}, Ints{9, 0}), row_ends(device(), DType::i32, {3}),
      sorted(device(), DType::i32, {2});
  const GuardedTensor rows(device(), DType::i32, {2}), fault(device(), DType::i32, {4}, earlier);
  expert_sort::enqueue(device().stream, sort_args(ids, 0, 3, 3, 0, row_ends, sorted, rows, fault));
  EXPECT_EQ(fault.read<std::int32_t>(), earlier);
  EXPECT_EQ(rows.read<std::int32_t>(), (Ints{-1, 0}));
}

TEST(ExpertSortScratchTest, AGpuHasATableFromThreeChunksOf2048SlotsOn) {
  DeviceCaps gpu;
  gpu.type = DeviceType::gpu, gpu.compute_units = 132;
  EXPECT_EQ(expert_sort::scratch_bytes(3 * 2048 - 1, 128, gpu), 0U);
  EXPECT_EQ(expert_sort::scratch_bytes(3 * 2048, 128, gpu), 3U * (128 + 1) * sizeof(std::int32_t));
}

TEST_P(ExpertSortTest, RandomProblems) {
  std::mt19937_64 engine(4);
  for (int i = 0; i < 30; ++i) {
    const auto below = [&](std::int64_t n) {
      return static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(n));
    };
    ExpertSortCase c{below(60), 1 + below(9), 0, 0, 0};
    c.total = static_cast<std::int32_t>(1 + below(300));
    c.first = static_cast<std::int32_t>(below(c.total));
    c.end = c.first + static_cast<std::int32_t>(1 + below(c.total - c.first));
    c.rows_per_expert = below(2) * (1 + below(10));
    check(random_ids(c, engine(), -1, c.total + static_cast<std::int32_t>(below(2))), c);
  }
}

TEST_P(ExpertSortTest, RejectsWrongShapes) {
  const GuardedTensor ids(device(), DType::i32, {3, 2}), six(device(), DType::i32, {6}),
      four(device(), DType::i32, {4});
  const auto reason = [&](const expert_sort::Args& args) { return expert_sort::reject(args, {}, device().record()); };
  EXPECT_EQ(reason(sort_args(ids, 0, 4, 4, 0, four, six, six, four)), "");
  EXPECT_THAT(reason(sort_args(six, 0, 4, 4, 0, four, six, six, {})), testing::HasSubstr("i32[T, K], got i32[6]"));
  EXPECT_THAT(reason(sort_args(ids, 2, 2, 4, 0, four, six, six, {})),
              testing::HasSubstr("[2, 2) is no range of the 4"));
  EXPECT_THAT(reason(sort_args(ids, 0, 5, 4, 0, four, six, six, {})),
              testing::HasSubstr("[0, 5) is no range of the 4"));
  EXPECT_THAT(reason(sort_args(ids, 0, 4, 4, 0, six, six, six, {})),
              testing::HasSubstr("row_ends: expected i32[4], got i32[6]"));
  EXPECT_THAT(reason(sort_args(ids, 0, 4, 4, 3, four, six, six, {})),
              testing::HasSubstr("sorted_slots: expected i32[12], got i32[6]"));
  EXPECT_THAT(reason(sort_args(ids, 0, 4, 4, 0, four, six, four, {})),
              testing::HasSubstr("slot_rows: expected i32[6], got i32[4]"));
  EXPECT_THAT(reason(sort_args(ids, 0, 4, 4, 1LL << 31, four, six, six, {})),
              testing::HasSubstr("2147483648 for 4 experts"));
  expert_sort::Args keys = sort_args(ids, 0, 4, 4, 0, {}, six, {});
  keys.key_bits = 3;
  EXPECT_EQ(reason(keys), "");
  keys.key_shift = 31;
  EXPECT_THAT(reason(keys), testing::HasSubstr("key_shift: 31 is outside [0, 30]"));
  keys = sort_args(ids, 0, 3, 3, 0, {}, six, {});
  keys.key_bits = 3;
  EXPECT_THAT(reason(keys), testing::HasSubstr("a power of two from 0 on is needed"));
  const std::int32_t too_many = static_cast<std::int32_t>(device().caps().local_mem_bytes / 4);
  const GuardedTensor ends(device(), DType::i32, {too_many});
  EXPECT_THAT(reason(sort_args(ids, 0, too_many, too_many, 0, ends, six, six, {})),
              testing::HasSubstr("bytes of local memory"));
  EXPECT_THROW(expert_sort::enqueue(device().stream, sort_args(ids, 0, 5, 4, 0, four, six, six, {})), Error);
}

}  // namespace
}  // namespace moecl::test
