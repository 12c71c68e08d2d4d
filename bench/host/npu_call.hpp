#pragma once
// Measures an operator of moecl::npu whose inputs are on the device.
#include <moecl/npu.hpp>

#include <vector>

#include "bench/device_time.hpp"
#include "host/npu/describe.hpp"

namespace moecl::bench {

/// Times the kernels of one call, with the bytes and flops of the operator's `cost`.
template <class Args>
void measure_operator(benchmark::State& state, Args args) {
  infer(args);
  std::vector<Buffer> memory;
  npu::for_each_output(args, [&](const char*, TensorView& view) {
    memory.emplace_back(*stream().context, view.size_bytes());
    view.buffer = memory.back().view();
  });
  const Buffer workspace(*stream().context, workspace_bytes(args, *stream().device));
  npu::Call how;
  how.workspace = workspace.view();
  measure(state, cost(args), [&] { npu::Describe<Args>::run(stream(), args, how); });
}

}  // namespace moecl::bench
