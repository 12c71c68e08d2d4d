#include "bench/device_time.hpp"
#include "tests/cases/route_tokens.hpp"

namespace moecl::bench {
namespace {

/// As Qwen3-30B-A3B routes.
void route(benchmark::State& state) {
  const std::int64_t tokens = state.range(0), top_k = 8;
  constexpr std::int32_t experts = 128;
  RouterSpec spec{top_k};
  spec.renormalise = true;
  const test::RoutedTokens routed(stream(), tokens, experts, top_k,
                                  test::normal(static_cast<std::size_t>(tokens * experts), 1));
  const route_tokens::Args args = routed.args();
  measure(state, route_tokens::cost(args), [&] { route_tokens::enqueue(stream(), args, spec); });
}
BENCHMARK(route)->Name("route_tokens/softmax/E:128/K:8")->ArgName("T")->Arg(1)->Arg(16)->UseManualTime();

}  // namespace
}  // namespace moecl::bench
