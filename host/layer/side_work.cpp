#include "host/layer/side_work.hpp"

#include <CL/cl.h>

#include "dispatch/stream_events.hpp"

namespace moecl {

SideWork::SideWork(StreamView stream) : stream_(stream), side_(stream.side()) {
  enqueue_wait(side_, enqueue_record(stream));
}

void SideWork::end() { done_ = enqueue_record(side_); }

void SideWork::join() {
  if (side_.queue == nullptr) return;
  if (done_.handle() == nullptr) end();
  enqueue_wait(stream_, done_);
  side_ = {};
}

SideWork::~SideWork() {
  try {
    join();
  } catch (...) {
    clFinish(side_.queue);  // the driver takes no markers any more
  }
}

}  // namespace moecl
