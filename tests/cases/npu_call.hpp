#pragma once
// Runs an operator of moecl::npu whose inputs are on the device, and reads its outputs back.
#include <moecl/moe_layer.hpp>
#include <moecl/npu.hpp>

#include <cstdint>
#include <vector>

#include "host/npu/describe.hpp"
#include "tests/cases/device_memory.hpp"

namespace moecl::test {

/// Outputs as doubles, in the order of the operator's fields. An output that `infer` leaves absent is empty. `how.tail`
/// says what is outside the defined part. Workspace and fault word are provided. Stops the host. Errors: the
/// operator's; invalid_argument for a fault found on the device
template <class Args>
std::vector<std::vector<double>> call_operator(StreamView stream, Args args, npu::Call how = {}) {
  infer(args);
  std::vector<Buffer> memory;
  npu::for_each_output(args, [&](const char*, TensorView& view) {
    memory.emplace_back(*stream.context, view.size_bytes());
    view.buffer = memory.back().view();
  });
  const Buffer workspace(*stream.context, workspace_bytes(args, *stream.device));
  how.workspace = workspace.view();
  const DeviceTensor fault(stream, DType::i32, {4}, {0, 0, 0, 0});
  how.fault = fault;
  npu::Describe<Args>::run(stream, args, how);
  std::vector<std::vector<double>> outputs;
  npu::for_each_output(args, [&](const char*, TensorView& view) {
    std::vector<unsigned char> bytes(view.size_bytes());
    read_blocking(stream, view.buffer, bytes.data(), bytes.size());
    outputs.push_back(decode(view.dtype, bytes));
  });
  check_fault(stream, fault);
  return outputs;
}

}  // namespace moecl::test
