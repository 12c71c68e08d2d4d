#include "runtime/driver_process.hpp"

#include <atomic>
#include <unistd.h>

#include "runtime/check.hpp"

namespace moecl {
namespace {

std::atomic<pid_t> driver_process{0};  ///< as the driver's threads, one for all contexts

}  // namespace

void enter_driver_process() {
  pid_t nobody = 0;
  driver_process.compare_exchange_strong(nobody, getpid());
  expect_driver_process();
}

void expect_driver_process() {
  const pid_t of_driver = driver_process, mine = getpid();
  if (of_driver != 0 && of_driver != mine)
    fail(
        ErrorCode::unsupported,
        "process {} was forked from process {}, which had used OpenCL, and lacks the driver's threads: fork before the "
        "first call, or exec",
        mine, of_driver);
}

}  // namespace moecl
