// What a warm forward costs the host thread: the bar is 8 us for a layer in one launch, 18 us for one in several, on
// the CPU of an H200's machine.
#include <moecl/moe_layer.hpp>

#include "bench/host_time.hpp"
#include "bench/model_case.hpp"
#include "tests/cases/device_memory.hpp"

namespace moecl::bench {
namespace {

void forward(benchmark::State& state, const char* scheme, bool one_launch) {
  const StreamView on = stream();
  const std::int64_t tokens = state.range(0);
  const ModelCase model = ModelCase::named("qwen3-30b-a3b", 16, Scheme::named(scheme));
  const ModelWeights weights(model, true);
  MoeLayerOptions options;
  options.dtype = DType::bf16;
  options.one_launch = one_launch;
  const MoeLayer layer(on, model.shape, weights.weights, options);
  const Buffer workspace(*on.context, layer.workspace_bytes(tokens));
  const test::DeviceTensor x(on, DType::bf16, {tokens, model.shape.hidden}),
      out(on, DType::f32, {tokens, model.shape.hidden});
  MoeLayer::Forward args;
  args.x = x;
  args.out = out;
  args.workspace = workspace.view();
  measure_enqueue(state, [&] { layer.forward(on, args); });
  const std::uint64_t before = on.context->counters().kernels_launched;
  layer.forward(on, args);
  state.counters["launches"] = static_cast<double>(on.context->counters().kernels_launched - before);
}

void add(const char* scheme, bool one_launch, const char* title) {
  benchmark::RegisterBenchmark(title, [=](benchmark::State& state) { forward(state, scheme, one_launch); })
      ->ArgName("T")
      ->Arg(1)
      ->Arg(64)
      ->UseManualTime()
      ->Iterations(50);
}

const bool registered = [] {
  add("bf16", true, "host_time/bf16");
  add("bf16", false, "host_time/bf16/several_launches");
  add("fp8_w8a8_block", true, "host_time/fp8_w8a8_block");
  return true;
}();

}  // namespace
}  // namespace moecl::bench
