#include "runtime/completion_time.hpp"

#include <CL/cl.h>

#include <chrono>

#include "runtime/check.hpp"

namespace moecl {
namespace {

void CL_CALLBACK note_completion(cl_event, cl_int, void* time) {
  const std::unique_ptr<CompletionTime> own(static_cast<CompletionTime*>(time));
  **own = now_ns();
}

}  // namespace

std::int64_t now_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

CompletionTime watch_completion(cl_event event) {
  auto time = std::make_shared<std::atomic<std::int64_t>>(0);
  auto owned = std::make_unique<CompletionTime>(time);
  check_cl(clSetEventCallback(event, CL_COMPLETE, note_completion, owned.get()), "clSetEventCallback");
  static_cast<void>(owned.release());  // the callback owns it now
  return time;
}

}  // namespace moecl
