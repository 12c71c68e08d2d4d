#include "runtime/kernel.hpp"

#include <CL/cl.h>

#include "runtime/check.hpp"
#include "runtime/command.hpp"
#include "runtime/kernel_library.hpp"

namespace moecl {

void detail::launch(StreamView stream, const KernelKey& key, const NdRange& range, const Submit& submit, WorkInfo info,
                    std::span<const KernelArg> args) {
  if (range.global[0] == 0 || range.global[1] == 0 || range.global[2] == 0) return enqueue_marker(stream, submit);
  const KernelLibrary::Lease kernel(stream.context->kernels(), *stream.device, key);
  require(args.size() == kernel.arity(), "kernel {}: {} arguments set, it takes {}", key.kernel, args.size(),
          kernel.arity());
  for (std::uint32_t i = 0; i < args.size(); ++i) {
    const void* value = args[i].local ? nullptr : args[i].value.data();
    const cl_int status = clSetKernelArg(kernel.handle(), i, args[i].size_bytes, value);
    if (status != CL_SUCCESS) fail_cl(status, "clSetKernelArg of argument {} of kernel {}", i, key.kernel);
  }
  submit_command(stream, submit, std::move(info), [&](cl_event* event) {
    const cl_int status = clEnqueueNDRangeKernel(stream.queue, kernel.handle(), 3, nullptr, range.global.data(),
                                                 range.local.data(), submit.wait.count, submit.wait.events, event);
    if (status != CL_SUCCESS)
      fail_cl(status, "clEnqueueNDRangeKernel of {} over [{}, {}, {}] by [{}, {}, {}]", key.kernel, range.global[0],
              range.global[1], range.global[2], range.local[0], range.local[1], range.local[2]);
  });
  ++stream.context->counters().kernels_launched;
}

void build(StreamView stream, const KernelKey& key) {
  const KernelLibrary::Lease kernel(stream.context->kernels(), *stream.device, key);
}

}  // namespace moecl
