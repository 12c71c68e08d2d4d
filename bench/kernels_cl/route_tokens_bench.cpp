#include "bench/device_time.hpp"
#include "tests/cases/route_tokens.hpp"

namespace moecl::bench {
namespace {

/// As Qwen3-30B-A3B routes.
void route(benchmark::State& state) {
  constexpr std::int32_t experts = 128;
  RouterSpec spec{8};
  spec.renormalise = true;
  test::OperandsOf<test::RouteTokensCase> routed(
      stream(), {experts, test::normal(static_cast<std::size_t>(state.range(0) * experts), 1), {}, spec});
  routed.args.sort.fault = {};
  measure(state, route_tokens::cost(routed.args), [&] { route_tokens::enqueue(stream(), routed.args, spec); });
}
BENCHMARK(route)->Name("route_tokens/softmax/E:128/K:8")->ArgName("T")->Arg(1)->Arg(16)->UseManualTime();

}  // namespace
}  // namespace moecl::bench
