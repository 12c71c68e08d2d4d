#pragma once
// Events between streams, of ranks or of one.
#include <moecl/stream.hpp>

#include <memory>
#include <vector>

namespace moecl {

/// What was enqueued so far, for another queue to wait for; no event where the stream only compiles. Async: a marker,
/// handed to the device
Event enqueue_record(StreamView stream);
/// What comes next on the stream waits for the event, if there is one.
void enqueue_wait(StreamView stream, const Event& event);

/// As enqueue_record, for several to hold.
std::shared_ptr<const Event> recorded(StreamView stream);
void wait_on_stream(StreamView stream, const std::vector<_cl_event*>& events);

}  // namespace moecl
