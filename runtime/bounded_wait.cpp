#include "runtime/bounded_wait.hpp"

#include <moecl/context.hpp>

#include <CL/cl.h>

#include <algorithm>
#include <thread>

#include "runtime/check.hpp"

namespace moecl {
namespace {

constexpr std::chrono::hours forever{24 * 365};
/// Time for commands that were enqueued before a refused event and still run.
constexpr std::chrono::milliseconds patience{2000};

/// Whether the event ends in time: a command that failed has ended too.
bool ends_within(const Event& event, std::chrono::milliseconds time, const std::function<bool()>& given_up = {}) {
  try {
    return completes_within(event, time, given_up);
  } catch (const Error&) {
    return true;
  }
}

}  // namespace

bool completes_within(const Event& event, std::chrono::milliseconds time, const std::function<bool()>& given_up) {
  using Clock = std::chrono::steady_clock;
  if (event.is_complete()) return true;
  // Flushes, as clWaitForEvents does: on rusticl polling alone starts nothing.
  cl_command_queue queue = nullptr;
  check_cl(clGetEventInfo(event.handle(), CL_EVENT_COMMAND_QUEUE, sizeof(queue), &queue, nullptr), "clGetEventInfo");
  if (queue != nullptr) check_cl(clFlush(queue), "clFlush");
  const Clock::time_point begin = Clock::now();
  while (!event.is_complete()) {
    const Clock::duration waited = Clock::now() - begin;
    if (waited > time || (given_up && given_up())) return event.is_complete();
    if (waited < std::chrono::microseconds(100))
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::min<Clock::duration>(waited / 8, std::chrono::milliseconds(1)));
  }
  return true;
}

void expect_end(Context& context, const Event& event) {
  const ContextCounters& counters = context.counters();
  if (counters.user_events_unset == 0) return;
  if (ends_within(event, forever, [&] { return counters.user_events_refused != 0; }) || ends_within(event, patience))
    return;
  fail(ErrorCode::device_error, "a command did not end for {} ms after the driver refused to set an event",
       patience.count());
}

void expect_end(Context& context, cl_command_queue queue) {
  if (context.counters().user_events_unset == 0) return;
  cl_event marker = nullptr;
  check_cl(clEnqueueMarkerWithWaitList(queue, 0, nullptr, &marker), "clEnqueueMarkerWithWaitList");
  Event last(marker);
  expect_end(context, last);
  try {
    last.is_complete();
  } catch (const Error&) {  // the next call reports it
    context.keep_failed(std::move(last));
  }
}

void expect_done(Context& context, Event event) {
  try {
    event.is_complete();
  } catch (const Error&) {
    context.keep_failed(std::move(event));
    throw;
  }
}

}  // namespace moecl
