#include "bench/device_time.hpp"
#include "tests/cases/physical_experts.hpp"

namespace moecl::bench {
namespace {

/// 256 experts, 32 of which have a second place; top 8.
void experts_of_tokens(benchmark::State& state) {
  constexpr std::int32_t experts = 256, redundant = 32;
  test::PhysicalExpertsCase of{8};
  for (std::int64_t i = 0; i < state.range(0) * of.top_k; ++i)
    of.ids.push_back(static_cast<std::int32_t>(i * 7919 % experts));
  for (std::int32_t e = 0; e < experts; ++e) {
    of.places.push_back({e});
    if (e < redundant) of.places.back().push_back(experts + e);
  }
  test::OperandsOf<test::PhysicalExpertsCase> placed(stream(), std::move(of));
  placed.args.fault = {};
  measure(state, cost(placed.args), [&] { physical_experts::enqueue(stream(), placed.args); });
}
BENCHMARK(experts_of_tokens)->Name("physical_experts/E:256/K:8")->ArgName("T")->Arg(16)->Arg(4096)->UseManualTime();

}  // namespace
}  // namespace moecl::bench
