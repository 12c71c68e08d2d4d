#include "runtime/bounded_wait.hpp"

#include <CL/cl.h>

#include <algorithm>
#include <thread>

#include "runtime/check.hpp"

namespace moecl {

bool completes_within(const Event& event, std::chrono::milliseconds time, const std::function<bool()>& given_up) {
  using Clock = std::chrono::steady_clock;
  if (event.is_complete()) return true;
  // As clWaitForEvents does; to look alone starts nothing on rusticl.
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

}  // namespace moecl
