#pragma once
// Events between streams, of ranks or of one.
#include <moecl/stream.hpp>

#include <memory>
#include <vector>

namespace moecl {

/// An event after everything enqueued so far, for another queue to wait for. No event if the stream only compiles.
/// Async: enqueues a marker and flushes
Event enqueue_record(StreamView stream);
/// Later commands of the stream wait for the event, if there is one.
void enqueue_wait(StreamView stream, const Event& event);

/// As enqueue_record, for several owners.
std::shared_ptr<const Event> recorded(StreamView stream);
void wait_on_stream(StreamView stream, const std::vector<_cl_event*>& events);

}  // namespace moecl
