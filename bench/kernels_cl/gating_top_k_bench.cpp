#include "bench/device_time.hpp"
#include "tests/cases/gating_top_k.hpp"

namespace moecl::bench {
namespace {

void route(benchmark::State& state, std::int64_t experts, const RouterSpec& spec, bool biased) {
  const std::int64_t tokens = state.range(0);
  const auto normal = [](std::int64_t count, std::uint64_t seed) {
    return test::normal(static_cast<std::size_t>(count), seed);
  };
  const test::OperandsOf<test::GatingTopKCase> routed(
      stream(), {experts, normal(tokens * experts, 1), biased ? normal(experts, 2) : std::vector<double>(), spec});
  measure(state, gating_top_k::cost(routed.args), [&] { gating_top_k::enqueue(stream(), routed.args, spec); });
  state.counters["time/token"] = benchmark::Counter(
      static_cast<double>(tokens), benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void qwen3(benchmark::State& state) {
  RouterSpec spec{8};
  spec.renormalise = true;
  route(state, 128, spec, false);
}
BENCHMARK(qwen3)
    ->Name("gating_top_k/softmax/E:128/K:8")
    ->ArgName("T")
    ->Arg(1)
    ->Arg(16)
    ->Arg(512)
    ->Arg(2048)
    ->UseManualTime();

void deepseek_v3(benchmark::State& state) {
  route(state, 256,
        {8, ScoreFunction::sigmoid, ScoreOrder::before_top_k, 8, 4, GroupScore::sum_of_top_2, true, 1e-20F, 2.5F},
        true);
}
BENCHMARK(deepseek_v3)
    ->Name("gating_top_k/sigmoid/E:256/K:8/groups:4of8")
    ->ArgName("T")
    ->Arg(1)
    ->Arg(16)
    ->Arg(512)
    ->Arg(2048)
    ->UseManualTime();

}  // namespace
}  // namespace moecl::bench
