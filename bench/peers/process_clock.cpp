// Preloaded, this library makes monotonic clocks count the processor time of the process: for measurements of one
// thread on a machine that has other work.
//
//     LD_PRELOAD=libmoecl_process_clock.so POCL_MAX_PTHREAD_COUNT=1 OMP_NUM_THREADS=1 moecl_bench_peers
#include <ctime>
#include <sys/syscall.h>
#include <unistd.h>

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const bool forward = clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_RAW;
  return static_cast<int>(syscall(SYS_clock_gettime, forward ? CLOCK_PROCESS_CPUTIME_ID : clock, time));
}
