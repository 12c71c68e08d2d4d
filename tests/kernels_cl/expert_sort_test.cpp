#include "tests/oracle/expert_sort.hpp"

#include <moecl/expert_sort.hpp>

#include <gmock/gmock.h>

#include <random>

#include "tests/devices.hpp"

namespace moecl::test {
namespace {

using Ints = std::vector<std::int32_t>;

struct Case {
  std::int64_t tokens, top_k;
  std::int32_t first, end, total;
  std::int64_t rows_per_expert = 0;
};

class ExpertSortTest : public OnEveryDevice {
 protected:
  /// Sorts `ids` with 1 and with 64 lanes and compares with the oracle.
  void check(const Ints& ids, const Case& c) {
    const oracle::SortedSlots expected = oracle::expert_sort(ids, c.first, c.end, c.total, c.rows_per_expert);
    const std::int32_t experts = c.end - c.first;
    const std::int64_t rows = c.rows_per_expert == 0 ? c.tokens * c.top_k : experts * c.rows_per_expert;
    for (const std::int32_t lanes : {1, 64}) {
      SCOPED_TRACE(testing::Message() << "T = " << c.tokens << ", K = " << c.top_k << ", experts [" << c.first << ", "
                                      << c.end << ") of " << c.total << ", " << c.rows_per_expert
                                      << " rows each, lanes = " << lanes);
      const GuardedTensor device_ids(device(), DType::i32, {c.tokens, c.top_k}, ids);
      const GuardedTensor row_ends(device(), DType::i32, {experts}),
          slot_rows(device(), DType::i32, {c.tokens * c.top_k});
      const GuardedTensor sorted(device(), DType::i32, {rows}, Ints(static_cast<std::size_t>(rows), -1)),
          fault(device(), DType::i32, {4}, Ints(4));
      const Buffer scratch(*device().context,
                           expert_sort::scratch_bytes(c.tokens * c.top_k, experts, device().caps()) + 1);
      expert_sort::enqueue(
          device().stream,
          {device_ids, c.first, c.end, c.total, c.rows_per_expert, row_ends, sorted, slot_rows, fault, scratch.view()},
          {lanes});
      EXPECT_EQ(row_ends.read<std::int32_t>(), expected.row_ends);
      Ints sorted_slots = expected.sorted_slots;
      sorted_slots.resize(static_cast<std::size_t>(rows), -1);
      EXPECT_EQ(sorted.read<std::int32_t>(), sorted_slots);
      EXPECT_EQ(slot_rows.read<std::int32_t>(), expected.slot_rows);
      EXPECT_EQ(fault.read<std::int32_t>(), (Ints{expected.fault_code, expected.fault_slot, expected.fault_value, 0}));
    }
  }

  Ints random_ids(const Case& c, std::uint64_t seed, std::int32_t low, std::int32_t high) {
    std::mt19937_64 engine(seed);
    Ints ids(static_cast<std::size_t>(c.tokens * c.top_k));
    for (std::int32_t& id : ids)
      id = low + static_cast<std::int32_t>(engine() % static_cast<std::uint64_t>(high - low));
    return ids;
  }
};
MOECL_ON_EVERY_DEVICE(ExpertSortTest);

TEST_P(ExpertSortTest, SortsFewAndManySlots) {
  for (const Case& c : {Case{1, 1, 0, 1, 1}, Case{1, 8, 0, 128, 128}, Case{16, 8, 0, 128, 128},
                        Case{65, 1, 0, 4096, 4096}, Case{8191, 3, 0, 60, 60}, Case{100'003, 1, 0, 256, 256}})
    check(random_ids(c, 1, 0, c.total), c);
}

}  // namespace
}  // namespace moecl::test
