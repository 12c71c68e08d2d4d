#include <random>

#include "bench/device_time.hpp"
#include "tests/cases/expert_sort.hpp"

namespace moecl::bench {
namespace {

/// Uniform routing to K of E experts.
void sort_slots(benchmark::State& state) {
  const auto experts = static_cast<std::int32_t>(state.range(1));
  test::ExpertSortCase of{state.range(0), 8, 0, experts, experts};
  const std::int64_t slots = of.tokens * of.top_k;
  std::mt19937_64 engine(1);
  for (std::int64_t i = 0; i < slots; ++i)
    of.ids.push_back(static_cast<std::int32_t>(engine() % static_cast<std::uint64_t>(experts)));
  test::OperandsOf<test::ExpertSortCase> sort(stream(), std::move(of));
  sort.args.counts = sort.args.fault = {};
  measure(state, expert_sort::cost(sort.args), [&] { expert_sort::enqueue(stream(), sort.args); });
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
