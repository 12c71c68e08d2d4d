#pragma once
#include <moecl/context.hpp>
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
  Event event(handle);
  if (trace != nullptr) trace->command(stream, event, std::move(info), begin_ns);
  if (submit.done != nullptr) *submit.done = std::move(event);
}

}  // namespace moecl
