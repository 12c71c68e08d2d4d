#include <moecl/expert_sort.hpp>

#include <random>

#include "bench/device_time.hpp"
#include "tests/cases/device_memory.hpp"

namespace moecl::bench {
namespace {

/// Uniform routing to the K of E experts.
void sort_slots(benchmark::State& state) {
  const std::int64_t tokens = state.range(0), top_k = 8, slots = tokens * top_k;
  const auto experts = static_cast<std::int32_t>(state.range(1));
  std::mt19937_64 engine(1);
  std::vector<double> ids(static_cast<std::size_t>(slots));
  for (double& id : ids) id = static_cast<double>(engine() % static_cast<std::uint64_t>(experts));
  const test::DeviceTensor device_ids(stream(), DType::i32, {tokens, top_k}, ids),
      row_ends(stream(), DType::i32, {experts});
  const test::DeviceTensor sorted(stream(), DType::i32, {slots}), slot_rows(stream(), DType::i32, {slots});
  const Buffer scratch(*stream().context, expert_sort::scratch_bytes(slots, experts, stream().device->caps) + 1);
  expert_sort::Args args;
  args.ids = device_ids;
  args.end_expert = args.total_experts = experts;
  args.row_ends = row_ends;
  args.sorted_slots = sorted;
  args.slot_rows = slot_rows;
  args.scratch = scratch.view();
  measure(state, expert_sort::cost(args), [&] { expert_sort::enqueue(stream(), args); });
  state.counters["time/slot"] = benchmark::Counter(
      static_cast<double>(slots), benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(sort_slots)
    ->Name("expert_sort/K:8")
    ->ArgNames({"T", "E"})
    ->ArgsProduct({{1, 16, 512, 2048, 32768}, {128, 256}})
    ->UseManualTime();

}  // namespace
}  // namespace moecl::bench
