#pragma once
#include <moecl/trace.hpp>

#include <utility>

namespace moecl {

/// Calls `enqueue(cl_event*)`, which enqueues one command or throws. Records the command in the trace and gives its
/// event to `submit.done`; the pointer is null if neither wants an event. Does nothing on a stream that compiles only.
template <class Enqueue>
void submit_command(StreamView stream, const Submit& submit, WorkInfo info, Enqueue enqueue) {
  if (stream.compiles_only) return;
  Trace* trace = stream.trace;
  const std::int64_t begin_ns = trace != nullptr ? Trace::now_ns() : 0;
  _cl_event* handle = nullptr;
  enqueue(trace != nullptr || submit.done != nullptr ? &handle : nullptr);
  Event own;
  Event& event = submit.done != nullptr ? *submit.done : own;
  event = Event(handle);  // first: the command runs, whether the trace can record it or not
  if (trace != nullptr) trace->command(stream, event, std::move(info), begin_ns);
}

}  // namespace moecl
