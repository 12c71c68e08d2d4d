#pragma once
// What enqueueing costs the host.
#include <benchmark/benchmark.h>

#include <ctime>

#include "bench/device_time.hpp"

namespace moecl::bench {

/// Processor time of this thread.
inline double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

/// Processor time that one enqueue costs the host thread, in chains of 64; the finish is not counted.
template <class Enqueue>
void measure_enqueue(benchmark::State& state, Enqueue enqueue) {
  constexpr int chain = 64;
  enqueue();
  stream().finish();
  for (auto _ : state) {
    const double start = thread_seconds();
    for (int i = 0; i < chain; ++i) enqueue();
    state.SetIterationTime((thread_seconds() - start) / chain);
    stream().finish();
  }
}

}  // namespace moecl::bench
