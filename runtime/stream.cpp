#include <moecl/context.hpp>
#include <moecl/stream.hpp>

#include <CL/cl.h>

#include <algorithm>

#include "runtime/bounded_wait.hpp"
#include "runtime/check.hpp"
#include "runtime/driver_process.hpp"
#include "runtime/kernel_library.hpp"

namespace moecl {
namespace {

template <class T>
T queue_info(cl_command_queue queue, cl_command_queue_info what) {
  T value{};
  check_cl(clGetCommandQueueInfo(queue, what, sizeof(value), &value, nullptr), "clGetCommandQueueInfo");
  return value;
}

}  // namespace

void StreamView::finish() const {
  expect_driver_process();
  ++context->counters().host_syncs;
  expect_end(*context, queue);
  // On PoCL and rusticl clFinish succeeds although a command failed. On PoCL a marker behind it fails too.
  cl_event marker = nullptr;
  const cl_int recorded = clEnqueueMarkerWithWaitList(queue, 0, nullptr, &marker);
  Event last(marker);
  // Waits whatever failed: afterwards the caller may free host memory that commands still use.
  const cl_int finished = clFinish(queue);
  if (finished != CL_SUCCESS && marker != nullptr) clWaitForEvents(1, &marker);
  check_cl(recorded, "clEnqueueMarkerWithWaitList");
  check_cl(finished, "clFinish");
  expect_done(*context, std::move(last));
}

void StreamView::flush() const {
  expect_driver_process();
  check_cl(clFlush(queue), "clFlush");
}

Event StreamView::record() const {
  expect_driver_process();
  cl_event event = nullptr;
  check_cl(clEnqueueMarkerWithWaitList(queue, 0, nullptr, &event), "clEnqueueMarkerWithWaitList");
  return Event(event);
}

void enqueue_marker(StreamView stream, const Submit& submit) {
  expect_driver_process();
  if (stream.compiles_only || (submit.done == nullptr && submit.wait.count == 0)) return;
  cl_event event = nullptr;
  check_cl(clEnqueueMarkerWithWaitList(stream.queue, submit.wait.count, submit.wait.events,
                                       submit.done != nullptr ? &event : nullptr),
           "clEnqueueMarkerWithWaitList");
  if (submit.done != nullptr) *submit.done = Event(event);
}

Stream::Stream(Context& context, std::size_t device_index, bool traced) : Stream() {
  expect_driver_process();
  require(device_index < context.devices().size(), "stream: device index {} in a context of {} devices", device_index,
          context.devices().size());
  const Device& device = context.devices()[device_index];
  Trace* trace = traced ? context.trace() : nullptr;
  const cl_command_queue_properties properties = trace != nullptr ? CL_QUEUE_PROFILING_ENABLE : 0;
  cl_int status = CL_SUCCESS;
  // The 1.2 entry point: clCreateCommandQueueWithProperties does not exist on OpenCL 1.2 drivers.
  cl_command_queue queue = clCreateCommandQueue(context.handle(), device.handle, properties, &status);
  check_cl(status, "clCreateCommandQueue");
  view_ = {&context, &device, queue, trace};
  context.kernels().add_queue(queue);
}

Stream Stream::borrow(Context& context, cl_command_queue queue) {
  expect_driver_process();
  require(queue != nullptr, "stream: the cl_command_queue is null");
  require(queue_info<cl_context>(queue, CL_QUEUE_CONTEXT) == context.handle(),
          "stream: the cl_command_queue belongs to another cl_context");
  const auto properties = queue_info<cl_command_queue_properties>(queue, CL_QUEUE_PROPERTIES);
  require((properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) == 0,
          "stream: the cl_command_queue is out-of-order; moecl needs an in-order queue");
  const auto handle = queue_info<cl_device_id>(queue, CL_QUEUE_DEVICE);
  const auto device = std::find_if(context.devices().begin(), context.devices().end(),
                                   [&](const Device& d) { return d.handle == handle; });
  require(device != context.devices().end(), "stream: the cl_command_queue's device is not one of the context");
  check_cl(clRetainCommandQueue(queue), "clRetainCommandQueue");
  Stream stream;
  stream.view_ = {&context, &*device, queue, context.trace()};
  context.kernels().add_queue(queue);
  return stream;
}

Stream Stream::beside(StreamView of, bool traced) {
  return Stream(*of.context, static_cast<std::size_t>(of.device - of.context->devices().data()), traced);
}

}  // namespace moecl
