#include "tests/cases/expert_slots.hpp"

#include "tests/cases/self_test.hpp"
#include "tests/oracle/expert_slots.hpp"

namespace moecl::test {

ExpertSlotsMemory::ExpertSlotsMemory(StreamView stream, std::int64_t experts, std::int64_t count,
                                     std::int64_t expert_bytes)
    : row_ends(stream, DType::i32, {experts}, std::vector<double>(static_cast<std::size_t>(experts))),
      slots(stream, DType::i32, {experts}, std::vector<double>(static_cast<std::size_t>(experts), -1)),
      holders(stream, DType::i32, {count}, std::vector<double>(static_cast<std::size_t>(count), -1)),
      priorities(stream, DType::i32, {experts}, std::vector<double>(static_cast<std::size_t>(experts))),
      fetches(stream, DType::i32, {1 + 2 * count}, std::vector<double>(static_cast<std::size_t>(1 + 2 * count))),
      counters(stream, DType::i64, {5}, {0, 0, 0, 0, 0}),
      awaited(stream, DType::i32, {count}, std::vector<double>(static_cast<std::size_t>(count))),
      from(stream, DType::u8, {experts, expert_bytes}),
      to(stream, DType::u8, {count, expert_bytes}) {
  enqueue_fill(stream, from.buffer.view(), 0x01010101);
}

expert_slots::Claim ExpertSlotsMemory::claim() const {
  expert_slots::Claim claim{row_ends, slots, holders, priorities, fetches, counters, awaited};
  claim.experts = static_cast<std::int32_t>(slots.view.shape[0]);
  return claim;
}

std::vector<double> ends_of(const std::vector<bool>& used) {
  std::vector<double> ends;
  for (const bool is_used : used) ends.push_back((ends.empty() ? 0 : ends.back()) + (is_used ? 1 : 0));
  return ends;
}

/// Nine experts of 192 bytes, of which three at a time are used, take turns in four slots.
std::vector<SelfTestResult> self_test_expert_slots(StreamView stream) {
  constexpr std::int32_t experts = 9, slots = 4;
  constexpr std::int64_t bytes = 192;
  const ExpertSlotsMemory memory(stream, experts, slots, bytes);
  std::vector<double> weights;
  for (std::int64_t i = 0; i < experts * bytes; ++i) weights.push_back(static_cast<double>(i * 31 % 251));
  const DeviceTensor from(stream, DType::u8, {experts, bytes}, weights);
  expert_slots::Fetch fetch = memory.fetch(slots);
  fetch.from = from;
  oracle::ExpertSlots expected(experts, slots);
  for (std::int32_t pass = 0; pass < 5; ++pass) {
    std::vector<bool> used(experts);
    for (std::int32_t i = 0; i < 3; ++i) used[static_cast<std::size_t>((pass * pass + i * 2) % experts)] = true;
    const DeviceTensor row_ends(stream, DType::i32, {experts}, ends_of(used));
    expert_slots::Claim claim = memory.claim();
    claim.row_ends = row_ends;
    expert_slots::enqueue(stream, claim);
    expert_slots::enqueue(stream, fetch);
    stream.finish();
    expected.claim(used, 0, experts, oracle::SlotPolicy::lru, claim.fading, true);
  }
  const auto doubles = [](const std::vector<std::int32_t>& values) {
    return std::vector<double>(values.begin(), values.end());
  };
  const bool tables = memory.slots.values(stream) == doubles(expected.slots) &&
                      memory.holders.values(stream) == doubles(expected.holders);
  bool brought = true;
  const std::vector<double> got = memory.to.values(stream);
  for (std::int64_t s = 0; s < slots; ++s)
    for (std::int64_t i = 0; i < bytes; ++i) {
      const std::int64_t holder = expected.holders[static_cast<std::size_t>(s)];
      brought = brought && (holder < 0 || got[static_cast<std::size_t>(s * bytes + i)] ==
                                              weights[static_cast<std::size_t>(holder * bytes + i)]);
    }
  return {{"expert_slots", "claim", "E=9 S=4", tables ? 0.0 : 1.0, 0},
          {"expert_slots", "fetch", "E=9 S=4 u8[192]", brought ? 0.0 : 1.0, 0}};
}

}  // namespace moecl::test
