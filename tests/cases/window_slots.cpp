#include "tests/oracle/window_slots.hpp"

#include <moecl/window_slots.hpp>

#include "tests/cases/device_memory.hpp"
#include "tests/cases/self_test.hpp"
#include "tests/oracle/expert_sort.hpp"

namespace moecl::test {

/// Three ranks with seven experts. This rank is the second, and receives what it has sent itself.
std::vector<SelfTestResult> self_test_window_slots(StreamView stream) {
  constexpr std::int32_t experts = 7, ranks = 3;
  constexpr std::int64_t slots = 20, capacity = 9;
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < slots; ++i) ids.push_back(i * i % 8 - (i % 3 == 0 ? 1 : 0));
  const oracle::SortedSlots sort = oracle::expert_sort(ids, 0, experts, experts, 0);
  const auto doubles = [](const std::vector<std::int32_t>& values) {
    return std::vector<double>(values.begin(), values.end());
  };
  std::vector<std::int32_t> all_ends;
  for (std::int32_t rank = 0; rank < ranks; ++rank)
    all_ends.insert(all_ends.end(), sort.row_ends.begin(), sort.row_ends.end());
  std::vector<double> order = doubles(sort.sorted_slots);
  order.resize(slots);
  const DeviceTensor row_ends(stream, DType::i32, {experts}, doubles(sort.row_ends)),
      every_row_ends(stream, DType::i32, {ranks, experts}, doubles(all_ends)),
      sorted_slots(stream, DType::i32, {slots}, order), slot_rows(stream, DType::i32, {slots}, doubles(sort.slot_rows));
  const DeviceTensor to_send(stream, DType::i32, {ranks * capacity}), local(stream, DType::i32, {ranks * capacity, 1}),
      home(stream, DType::i32, {slots}), tokens(stream, DType::i32, {slots / 2, 2}, doubles(ids)),
      rows_back(stream, DType::i32, {slots}), sums_back(stream, DType::i32, {slots});
  window_slots::enqueue(stream, window_slots::Outgoing{row_ends, sorted_slots, ranks, to_send});
  window_slots::enqueue(stream, window_slots::Incoming{every_row_ends, 1, local});
  window_slots::enqueue(stream, window_slots::ReturnRows{row_ends, slot_rows, ranks, capacity, home});
  window_slots::enqueue(stream, window_slots::TokenReturnRows{tokens, 0, experts, ranks, slots, false, rows_back, {}});
  window_slots::enqueue(stream, window_slots::TokenReturnRows{tokens, 0, experts, ranks, slots, true, sums_back, {}});

  const oracle::SentWindow sent = oracle::sent_window(ids, experts, ranks, capacity);
  const auto result = [&](const char* variant, const DeviceTensor& got, const std::vector<std::int32_t>& expected) {
    return SelfTestResult{"window_slots", variant, got.view.describe() + " E=7 R=3",
                          got.values(stream) == doubles(expected) ? 0.0 : 1.0, 0};
  };
  return {result("outgoing", to_send, sent.slots),
          result("incoming", local, oracle::received_experts({ids, ids, ids}, experts, 1, capacity)),
          result("return_rows", home, sent.rows),
          result("token_return_rows", rows_back, oracle::token_return_rows(ids, 2, 0, experts, ranks, slots, false)),
          result("token_return_rows", sums_back, oracle::token_return_rows(ids, 2, 0, experts, ranks, slots, true))};
}

}  // namespace moecl::test
