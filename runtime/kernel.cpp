#include "runtime/kernel.hpp"

#include <CL/cl.h>

#include <vector>

#include "runtime/check.hpp"
#include "runtime/command.hpp"
#include "runtime/driver_process.hpp"
#include "runtime/kernel_library.hpp"

namespace moecl {

void detail::launch(StreamView stream, const KernelKey& key, const NdRange& range, const Submit& submit, WorkInfo info,
                    std::span<const KernelArg> args) {
  expect_driver_process();  // before locks that another thread of the parent may have held
  if (range.global[0] == 0 || range.global[1] == 0 || range.global[2] == 0) return enqueue_marker(stream, submit);
  const KernelLibrary::Lease kernel(stream.context->kernels(), *stream.device, key, range, args);
  if (stream.compiles_only) return;
  require(args.size() == kernel.arity(), "kernel {}: {} arguments set, it takes {}", key.kernel, args.size(),
          kernel.arity());
  for (std::uint32_t i = 0; i < args.size(); ++i) {
    const cl_int status = clSetKernelArg(kernel.handle(), i, args[i].size_bytes, args[i].value);
    if (status != CL_SUCCESS) fail_cl(status, "clSetKernelArg of argument {} of kernel {}", i, key.kernel);
  }
  const auto enqueue = [&](const Submit& when) {
    submit_command(stream, when, std::move(info), [&](cl_event* event) {
      const cl_int status = clEnqueueNDRangeKernel(stream.queue, kernel.handle(), 3, nullptr, range.global.data(),
                                                   range.local.data(), when.wait.count, when.wait.events, event);
      if (status != CL_SUCCESS)
        fail_cl(status, "clEnqueueNDRangeKernel of {} over [{}, {}, {}] by [{}, {}, {}]", key.kernel, range.global[0],
                range.global[1], range.global[2], range.local[0], range.local[1], range.local[2]);
    });
  };
  std::unique_lock<std::mutex> lock;
  if (LaunchTurns* const turns = kernel.take_turn(lock); turns != nullptr) {
    std::vector<cl_event> wait(submit.wait.events, submit.wait.events + submit.wait.count);
    if (cl_event before = turns->before(); before != nullptr) wait.push_back(before);
    Event& launched = turns->next();
    enqueue({wait, &launched});
    if (submit.done != nullptr) {
      check_cl(clRetainEvent(launched.handle()), "clRetainEvent");
      *submit.done = Event(launched.handle());
    }
  } else {
    enqueue(submit);
  }
  ++stream.context->counters().kernels_launched;
}

}  // namespace moecl
