#include <moecl/error.hpp>
#include <moecl/fault.hpp>
#include <moecl/stable_sort.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "tests/devices.hpp"
#include "tests/oracle/edge_cases.hpp"

namespace moecl::test {
namespace {

using Ints = std::vector<std::int32_t>;

class StableSortTest : public OnEveryDevice {
 protected:
  /// Sorts on the device; compares with the standard library. Wrong keys may stand anywhere. Returns the fault word.
  Ints check(const Ints& keys, std::int32_t key_bits, std::int32_t lanes) {
    SCOPED_TRACE(testing::Message() << keys.size() << " keys of " << key_bits << " bits, lanes = " << lanes);
    const auto slots = static_cast<std::int64_t>(keys.size());
    const GuardedTensor device_keys(device(), DType::i32, {slots}, keys), sorted(device(), DType::i32, {slots}),
        rows(device(), DType::i32, {slots}), fault(device(), DType::i32, {4}, Ints(4));
    const Buffer scratch(*device().context, stable_sort::scratch_bytes(slots, key_bits, device().caps()) + 1);
    stable_sort::enqueue(device().stream, {device_keys, key_bits, sorted, rows, fault, scratch.view()}, {lanes});

    Ints order = sorted.read<std::int32_t>(), inverse(keys.size()), all(keys.size());
    std::iota(all.begin(), all.end(), 0);
    EXPECT_TRUE(std::is_permutation(order.begin(), order.end(), all.begin(), all.end()));
    for (std::size_t i = 0; i < order.size(); ++i)
      inverse.at(static_cast<std::size_t>(order[i])) = static_cast<std::int32_t>(i);
    EXPECT_EQ(rows.read<std::int32_t>(), inverse);
    const auto key = [&](std::int32_t slot) { return keys[static_cast<std::size_t>(slot)]; };
    const auto wrong = [&](std::int32_t slot) { return key(slot) < 0 || (std::int64_t{key(slot)} >> key_bits) != 0; };
    order.erase(std::remove_if(order.begin(), order.end(), wrong), order.end());
    all.erase(std::remove_if(all.begin(), all.end(), wrong), all.end());
    std::stable_sort(all.begin(), all.end(), [&](auto a, auto b) { return key(a) < key(b); });
    EXPECT_EQ(order, all);
    return fault.read<std::int32_t>();
  }

  static Ints random_keys(std::size_t count, std::uint64_t below, std::uint64_t seed) {
    std::mt19937_64 engine(seed);
    Ints keys(count);
    for (std::int32_t& key : keys) key = static_cast<std::int32_t>(engine() % below);
    return keys;
  }
};
MOECL_ON_EVERY_DEVICE(StableSortTest);

TEST_P(StableSortTest, EveryNumberOfPassesFewAndManySlots) {
  const Ints no_fault(4);
  for (const std::int32_t lanes : lane_choices)
    for (const std::size_t count : {0U, 1U, 77U, 17'001U})
      for (const std::int32_t bits : {1, 12, 13, 24, 25, 31}) {
        if (count > 1000 && bits != 13 && bits != 25) continue;
        EXPECT_EQ(check(random_keys(count, std::uint64_t{1} << bits, count + 1), bits, lanes), no_fault);
        EXPECT_EQ(check(random_keys(count, 2, count + 2), bits, lanes), no_fault);  // ties keep their order
      }
}

TEST_P(StableSortTest, TheLowestSlotWithAWrongKeyIsReported) {
  constexpr std::int32_t lowest = std::numeric_limits<std::int32_t>::min();
  const auto code = static_cast<std::int32_t>(FaultCode::key_out_of_range);
  Ints keys = random_keys(17'000, 1 << 14, 3);
  keys[16'900] = 1 << 14;
  keys[9'000] = -3;
  for (const std::int32_t lanes : lane_choices) {
    EXPECT_EQ(check({5, 16, 3, -1}, 4, lanes), (Ints{code, 1, 16, 0}));
    EXPECT_EQ(check({5, 7, lowest}, 31, lanes), (Ints{code, 2, lowest, 0}));
    EXPECT_EQ(check(keys, 14, lanes), (Ints{code, 9'000, -3, 0}));
  }
  EXPECT_EQ(describe({FaultCode::key_out_of_range, 9'000, -3}), "slot 9000 has the sort key -3, which is out of range");
}

TEST_P(StableSortTest, RejectsWrongShapes) {
  const GuardedTensor four(device(), DType::i32, {4}), five(device(), DType::i32, {5}),
      rows(device(), DType::i32, {2, 2});
  const Buffer scratch(*device().context, 16);
  const auto reason = [&](const stable_sort::Args& args) { return stable_sort::reject(args, {}, device().record()); };
  EXPECT_EQ(reason({four, 24, four, {}, four, scratch.view()}), "");
  EXPECT_EQ(reason({four, 12, four, {}, {}, {}}), "");
  EXPECT_THAT(reason({rows, 24, four, {}, {}, {}}), testing::HasSubstr("keys: expected i32[S], got i32[2, 2]"));
  EXPECT_THAT(reason({four, 32, four, {}, {}, {}}), testing::HasSubstr("key_bits: 32 is outside [1, 31]"));
  EXPECT_THAT(reason({four, 24, five, {}, {}, {}}), testing::HasSubstr("sorted_slots: expected i32[4], got i32[5]"));
  EXPECT_THAT(reason({four, 24, four, five, {}, {}}), testing::HasSubstr("slot_rows: expected i32[4], got i32[5]"));
  EXPECT_THAT(reason({four, 24, four, {}, {}, {}}), testing::HasSubstr("scratch: 16 bytes are needed, got 0"));
  EXPECT_THAT(reason({four, 24, four, {}, five, scratch.view()}), testing::HasSubstr("fault: expected i32[4]"));
  EXPECT_THROW(stable_sort::enqueue(device().stream, {four, 0, four, {}, {}, {}}), Error);
}

}  // namespace
}  // namespace moecl::test
