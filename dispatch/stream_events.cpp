#include "dispatch/stream_events.hpp"

namespace moecl {

Event enqueue_record(StreamView stream) {
  Event event;
  enqueue_marker(stream, {{}, &event});
  if (event.handle() != nullptr) stream.flush();
  return event;
}

void enqueue_wait(StreamView stream, const Event& event) {
  _cl_event* const handle = event.handle();
  if (handle != nullptr) enqueue_marker(stream, {{&handle, 1}, nullptr});
}

std::shared_ptr<const Event> recorded(StreamView stream) {
  return std::make_shared<const Event>(enqueue_record(stream));
}

void wait_on_stream(StreamView stream, const std::vector<_cl_event*>& events) {
  if (!events.empty()) enqueue_marker(stream, {events, nullptr});
}

}  // namespace moecl
