// StreamView::side and the end of a Stream stand here, since both need SideQueues, which is made of streams.
#include "runtime/side_queues.hpp"

#include <moecl/context.hpp>

#include <CL/cl.h>

#include "runtime/kernel_library.hpp"

namespace moecl {

StreamView StreamView::side() const { return context->side_queues().of(*this); }

Stream::~Stream() {
  if (view_.queue == nullptr) return;
  view_.context->side_queues().forget(view_.queue);
  view_.context->kernels().remove_queue(view_.queue);
  clReleaseCommandQueue(view_.queue);
}

// A side queue is released after the lock: its own end calls `forget` again.

StreamView SideQueues::of(StreamView stream) {
  Stream made;
  const std::lock_guard lock(mutex_);
  Stream& side = sides_[stream.queue];
  const bool traced = stream.trace != nullptr;
  if (side.view().queue == nullptr || (side.view().trace != nullptr) != traced) {
    made = Stream::beside(stream, traced);
    std::swap(side, made);
  }
  StreamView view = side;
  view.compiles_only = stream.compiles_only;
  return view;
}

void SideQueues::forget(_cl_command_queue* queue) noexcept {
  decltype(sides_)::node_type gone;
  const std::lock_guard lock(mutex_);
  gone = sides_.extract(queue);
}

}  // namespace moecl
