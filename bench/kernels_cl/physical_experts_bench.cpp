#include <moecl/physical_experts.hpp>

#include "bench/device_time.hpp"
#include "tests/cases/device_memory.hpp"

namespace moecl::bench {
namespace {

/// 256 experts of which 32 have a second place, top 8.
void experts_of_tokens(benchmark::State& state) {
  constexpr std::int32_t experts = 256, redundant = 32, top_k = 8;
  const std::int64_t tokens = state.range(0);
  std::vector<double> chosen, standing, counts;
  for (std::int64_t i = 0; i < tokens * top_k; ++i) chosen.push_back(static_cast<double>(i * 7919 % experts));
  for (std::int32_t e = 0; e < experts; ++e) {
    standing.push_back(e);
    standing.push_back(e < redundant ? experts + e : -1);
    counts.push_back(e < redundant ? 2 : 1);
  }
  const test::DeviceTensor ids(stream(), DType::i32, {tokens, top_k}, chosen),
      places(stream(), DType::i32, {experts, 2}, standing), replicas(stream(), DType::i32, {experts}, counts),
      physical(stream(), DType::i32, {tokens, top_k});
  const physical_experts::Args args{ids, places, replicas, 0, physical, {}};
  measure(state, cost(args), [&] { physical_experts::enqueue(stream(), args); });
}
BENCHMARK(experts_of_tokens)->Name("physical_experts/E:256/K:8")->ArgName("T")->Arg(16)->Arg(4096)->UseManualTime();

}  // namespace
}  // namespace moecl::bench
