#pragma once
#include <moecl/trace.hpp>

#include <utility>

namespace moecl {

/// Runs `enqueue(cl_event*)`, which enqueues one command and throws if it cannot; records the command in the trace and
/// hands its event to whoever wants it. The pointer is null where nobody does. Nothing on a stream that compiles only.
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
