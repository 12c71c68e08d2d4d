#include <moecl/window_slots.hpp>

#include "bench/device_time.hpp"
#include "tests/cases/device_memory.hpp"
#include "tests/oracle/expert_sort.hpp"

namespace moecl::bench {
namespace {

/// All indices of one MC2 exchange: 128 experts, top 8, 4 ranks with T tokens each.
void window_of_a_rank(benchmark::State& state) {
  constexpr std::int32_t experts = 128, ranks = 4;
  const std::int64_t slots = state.range(0) * 8;
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < slots; ++i) ids.push_back(static_cast<std::int32_t>(i * 7919 % experts));
  const test::oracle::SortedSlots sort = test::oracle::expert_sort(ids, 0, experts, experts, 0);
  const auto tensor = [](const std::vector<std::int32_t>& values) {
    return test::DeviceTensor(stream(), DType::i32, {static_cast<std::int64_t>(values.size())},
                              {values.begin(), values.end()});
  };
  std::vector<double> all_ends;
  for (std::int32_t rank = 0; rank < ranks; ++rank)
    all_ends.insert(all_ends.end(), sort.row_ends.begin(), sort.row_ends.end());
  const test::DeviceTensor ends = tensor(sort.row_ends), sorted = tensor(sort.sorted_slots),
                           rows = tensor(sort.slot_rows), every_end(stream(), DType::i32, {ranks, experts}, all_ends);
  const test::DeviceTensor to_send(stream(), DType::i32, {ranks * slots}),
      local(stream(), DType::i32, {ranks * slots, 1}), back(stream(), DType::i32, {slots});
  const window_slots::Outgoing outgoing{ends, sorted, ranks, to_send};
  const window_slots::Incoming incoming{every_end, 1, local};
  const window_slots::ReturnRows home{ends, rows, ranks, slots, back};
  OperatorCost all;
  for (const OperatorCost& cost : {cost(outgoing), cost(incoming), cost(home)}) all.bytes += cost.bytes;
  measure(state, all, [&] {
    window_slots::enqueue(stream(), outgoing);
    window_slots::enqueue(stream(), incoming);
    window_slots::enqueue(stream(), home);
  });
}
BENCHMARK(window_of_a_rank)->Name("window_slots/E:128/K:8/R:4")->ArgName("T")->Arg(16)->Arg(512)->UseManualTime();

}  // namespace
}  // namespace moecl::bench
