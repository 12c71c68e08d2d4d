#pragma once
// Measures what enqueueing costs the host.
#include <benchmark/benchmark.h>

#include <ctime>
#include <dlfcn.h>

#include "bench/device_time.hpp"

namespace moecl::bench {

/// Processor time of this thread.
inline double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

/// While an object lives, libmoecl_no_launch.so, if it is preloaded, leaves out the driver's part of launches. Ranks
/// whose kernels wait for each other must begin and end this together.
class LaunchesLeftOut {
 public:
  LaunchesLeftOut() { tell(1); }
  ~LaunchesLeftOut() { tell(0); }
  LaunchesLeftOut(const LaunchesLeftOut&) = delete;
  LaunchesLeftOut& operator=(const LaunchesLeftOut&) = delete;

 private:
  static void tell(int yes) {
    if (void* const preloaded = dlsym(RTLD_DEFAULT, "moecl_leave_out_launches"))
      reinterpret_cast<void (*)(int)>(preloaded)(yes);
  }
};

/// Measures the processor time of the host thread per enqueue, in chains of 64. The finish is not counted.
template <class Enqueue>
void measure_enqueue(benchmark::State& state, Enqueue enqueue) {
  constexpr int chain = 64;
  enqueue();
  stream().finish();
  const LaunchesLeftOut left_out;
  for (auto _ : state) {
    const double start = thread_seconds();
    for (int i = 0; i < chain; ++i) enqueue();
    state.SetIterationTime((thread_seconds() - start) / chain);
    stream().finish();
  }
}

}  // namespace moecl::bench
