#include "dispatch/stream_events.hpp"

namespace moecl {

std::shared_ptr<const Event> recorded(StreamView stream) {
  Event event;
  enqueue_marker(stream, {{}, &event});
  stream.flush();  // others will wait for it
  return std::make_shared<const Event>(std::move(event));
}

void wait_on_stream(StreamView stream, const std::vector<_cl_event*>& events) {
  if (!events.empty()) enqueue_marker(stream, {events, nullptr});
}

}  // namespace moecl
