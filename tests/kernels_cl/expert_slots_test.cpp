// Experts that take turns in slots, against the oracle of the policies.
#include "tests/oracle/expert_slots.hpp"

#include <moecl/error.hpp>
#include <moecl/expert_slots.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <random>

#include "tests/devices.hpp"

namespace moecl::test {
namespace {

using Ints = std::vector<std::int32_t>;

class ExpertSlotsTest : public OnEveryDevice {
 protected:
  /// The bytes of a tensor of words.
  static TensorView as_bytes(const TensorView& words) {
    return {words.buffer, DType::u8, {words.shape[0], 4 * words.shape[1]}};
  }
  GuardedTensor ints(const Ints& values) const {
    return {device(), DType::i32, {static_cast<std::int64_t>(values.size())}, values};
  }
};
MOECL_ON_EVERY_DEVICE(ExpertSlotsTest);

TEST_P(ExpertSlotsTest, FollowsThePolicies) {
  std::mt19937_64 random(3);
  for (const auto& [experts, count] : {std::pair{4, 1}, {9, 3}, {70, 65}, {200, 40}})
    for (const auto policy :
         {expert_slots::Policy::lru, expert_slots::Policy::least_stale, expert_slots::Policy::fixed}) {
      SCOPED_TRACE(testing::Message() << experts << " experts, " << count << " slots, policy "
                                      << static_cast<int>(policy));
      oracle::ExpertSlots model(experts, count);
      if (policy == expert_slots::Policy::fixed)
        for (std::int32_t& priority : model.priorities)
          priority = std::bit_cast<std::int32_t>(static_cast<float>(random() % 10));
      const GuardedTensor slots = ints(model.slots), holders = ints(model.holders), priorities = ints(model.priorities),
                          fetches = ints(Ints(static_cast<std::size_t>(1 + 2 * count))),
                          counters(device(), DType::i64, {5}, std::vector<std::int64_t>(5)),
                          awaited = ints(Ints(static_cast<std::size_t>(count)));
      const std::int64_t words = experts == 9 ? 2064 : experts == 4 ? 5 : 12;  // units of 64, 4 and 16 bytes
      Ints weights(static_cast<std::size_t>(experts * words));
      for (std::int32_t& word : weights) word = static_cast<std::int32_t>(random());
      const GuardedTensor from(device(), DType::i32, {experts, words}, weights),
          to(device(), DType::i32, {count, words});
      for (int pass = 0; pass < 16; ++pass) {
        // A wave has as many experts as slots, half as many, or all experts. Of all experts few are used or foreseen.
        const bool all = pass % 2 == 0, halves = pass % 4 == 3 && count > 1, foreseen = pass % 6 == 2;
        const std::int32_t half = count / 2, each = all ? experts : halves ? half : count;
        std::vector<bool> used(static_cast<std::size_t>(experts));
        if (all)
          for (int i = 0; i < count; ++i) used[random() % used.size()] = true;
        else
          for (std::size_t e = 0; e < used.size(); ++e) used[e] = random() % 3 != 0;
        Ints ends;
        std::int32_t end = 0;
        for (const bool is_used : used)
          ends.push_back(end += is_used ? 1 + static_cast<std::int32_t>(random() % 3) : 0);
        const GuardedTensor row_ends = ints(ends);
        for (std::int32_t first = 0; first < experts; first += each) {
          expert_slots::Claim claim{row_ends, slots, holders, priorities, fetches, counters, awaited};
          claim.first_expert = first, claim.experts = std::min(each, experts - first);
          claim.policy = policy, claim.fading = 0.5F, claim.new_pass = first == 0;
          claim.first_slot = halves && first / half % 2 == 1 ? half : 0, claim.slot_count = halves ? half : 0;
          claim.foreseen = foreseen;
          expert_slots::enqueue(device().stream, claim);
          expert_slots::enqueue(device().stream, expert_slots::Fetch{as_bytes(from), as_bytes(to), fetches, count});
          const auto expected =
              model.claim_part(used, first, claim.experts, static_cast<oracle::SlotPolicy>(policy), claim.fading,
                               first == 0, claim.first_slot, halves ? half : count, foreseen);
          ASSERT_EQ(slots.read<std::int32_t>(), model.slots) << "pass " << pass << " from expert " << first;
          ASSERT_EQ(holders.read<std::int32_t>(), model.holders);
          ASSERT_EQ(priorities.read<std::int32_t>(), model.priorities);
          ASSERT_EQ(counters.read<std::int64_t>(),
                    (std::vector<std::int64_t>{model.hits, model.misses, model.passes, model.prefetched,
                                               model.prefetched_hits}));
          ASSERT_EQ(awaited.read<std::int32_t>(), Ints(model.awaited.begin(), model.awaited.end()));
          const Ints got = fetches.read<std::int32_t>();
          ASSERT_EQ(got[0], std::ssize(expected));
          for (std::size_t i = 0; i < expected.size(); ++i)
            ASSERT_EQ(std::pair(got[1 + 2 * i], got[2 + 2 * i]), expected[i]);
          const Ints brought = to.read<std::int32_t>();
          for (std::size_t s = 0; s < model.holders.size(); ++s) {
            if (model.holders[s] < 0) continue;
            const auto its = weights.begin() + model.holders[s] * words;
            ASSERT_TRUE(std::equal(its, its + words, brought.begin() + static_cast<std::ptrdiff_t>(s) * words))
                << "slot " << s;
          }
        }
      }
    }
}

TEST_P(ExpertSlotsTest, RejectsWrongShapes) {
  const GuardedTensor four = ints({0, 0, 0, 0}), two = ints({0, 0}), five = ints({0, 0, 0, 0, 0}),
                      counters(device(), DType::i64, {5}, std::vector<std::int64_t>(5));
  expert_slots::Claim good{four, four, two, four, five, counters, two};
  good.experts = 4;
  EXPECT_EQ(expert_slots::reject(good), "");
  const auto refused = [&](const char* expected, const auto& change) {
    expert_slots::Claim bad = good;
    change(bad);
    EXPECT_THAT(expert_slots::reject(bad), testing::HasSubstr(expected));
  };
  refused("row_ends: expected i32[4]", [&](auto& c) { c.row_ends = two; });
  refused("fetches: expected i32[5]", [&](auto& c) { c.fetches = four; });
  refused("counters: expected i64[5]", [&](auto& c) { c.counters = four; });
  refused("awaited: expected i32[2]", [&](auto& c) { c.awaited = four; });
  refused("experts: 4 from 1 leave the 4 of slots", [&](auto& c) { c.first_expert = 1; });
  refused("slots: 2 from 1 leave the 2 of holders", [&](auto& c) { c.first_slot = 1, c.slot_count = 2; });
  refused("fading: 2 is not in [0, 1]", [&](auto& c) { c.fading = 2; });
  const GuardedTensor words(device(), DType::i32, {4, 2}), slots(device(), DType::i32, {2, 2}),
      others(device(), DType::i32, {2, 3});
  const TensorView from = as_bytes(words), to = as_bytes(slots);
  EXPECT_EQ(expert_slots::reject(expert_slots::Fetch{from, to, five, 2}), "");
  EXPECT_THAT(expert_slots::reject(expert_slots::Fetch{from, to, five, 3}), testing::HasSubstr("3 fetches into 2"));
  EXPECT_THAT(expert_slots::reject(expert_slots::Fetch{from, as_bytes(others), five, 2}),
              testing::HasSubstr("expected contiguous"));
}

}  // namespace
}  // namespace moecl::test
