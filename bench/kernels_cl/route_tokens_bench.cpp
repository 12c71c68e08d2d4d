#include "bench/device_time.hpp"
#include "tests/cases/route_tokens.hpp"

namespace moecl::bench {
namespace {

/// Routes as Qwen3-30B-A3B does, from logits or from tokens.
void route(benchmark::State& state, bool from_tokens) {
  constexpr std::int32_t experts = 128;
  RouterSpec spec{8};
  spec.renormalise = true;
  const std::int64_t tokens = state.range(0);
  test::OperandsOf<test::RouteTokensCase> routed(
      stream(), from_tokens ? test::RouteTokensCase::routed(tokens, experts, 2048, spec)
                            : test::RouteTokensCase{
                                  experts, test::normal(static_cast<std::size_t>(tokens * experts), 1), {}, spec});
  routed.args.sort.fault = {};
  measure(state, route_tokens::cost(routed.args), [&] { route_tokens::enqueue(stream(), routed.args, spec); });
}
BENCHMARK_CAPTURE(route, softmax, false)
    ->Name("route_tokens/softmax/E:128/K:8")
    ->ArgName("T")
    ->Arg(1)
    ->Arg(16)
    ->Arg(256)
    ->Arg(1024)
    ->Arg(4096)
    ->UseManualTime();
BENCHMARK_CAPTURE(route, router, true)
    ->Name("route_tokens/router/H:2048/E:128/K:8")
    ->ArgName("T")
    ->Arg(1)
    ->Arg(16)
    ->UseManualTime();

}  // namespace
}  // namespace moecl::bench
