#include "runtime/driver_process.hpp"

#include <atomic>
#include <pthread.h>
#include <unistd.h>

#include "runtime/check.hpp"

namespace moecl {
namespace {

std::atomic<pid_t> driver_process{0};  ///< one for all contexts, like the driver's threads
std::atomic<bool> is_forked{false};    ///< whether this process was forked from it

void note_fork() {
  if (driver_process != 0) is_forked = true;
}

}  // namespace

void enter_driver_process() {
  static const int failed = pthread_atfork(nullptr, nullptr, note_fork);
  if (failed != 0) fail(ErrorCode::out_of_memory, "pthread_atfork: error {}", failed);
  pid_t nobody = 0;
  driver_process.compare_exchange_strong(nobody, getpid());
  expect_driver_process();
}

void expect_driver_process() {
  if (!is_forked.load(std::memory_order_relaxed)) return;
  fail(ErrorCode::unsupported,
       "process {} was forked from process {}, which had used OpenCL, and lacks the driver's threads: fork before the "
       "first call, or exec",
       getpid(), driver_process.load());
}

}  // namespace moecl
