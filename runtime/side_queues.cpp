// Also defines StreamView::side and Stream's destructor: both need SideQueues, which consists of streams.
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

// `of` and `forget` release a side queue after the lock: the queue's own destructor calls `forget` again.

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
