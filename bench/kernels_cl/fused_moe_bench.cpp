#include "bench/device_time.hpp"
#include "tests/cases/fused_moe.hpp"

namespace moecl::bench {
namespace {

/// A small layer, by the first variant that runs on the device.
void fused_moe(benchmark::State& state) {
  const test::FusedMoeCase shape{state.range(0), 1024, 512, 8, 2};
  for (const grouped_gemm::Variant& variant : moecl::fused_moe::variants()) {
    const moecl::fused_moe::Config config{variant.name};
    const test::FusedMoeOperands layer(stream(), shape, config);
    if (!moecl::fused_moe::reject(layer.args, layer.router, config, *stream().device).empty()) continue;
    state.SetLabel(variant.name);
    return measure(state, moecl::fused_moe::cost(layer.args),
                   [&] { moecl::fused_moe::enqueue(stream(), layer.args, layer.router, config); });
  }
  state.SkipWithError("no variant runs here");
}
BENCHMARK(fused_moe)->Name("fused_moe/bf16/E:8/K:2")->ArgName("T")->Arg(1)->Arg(16)->UseManualTime();

}  // namespace
}  // namespace moecl::bench
