#pragma once
// Times operators for Google Benchmark: the host's clock around a chain of calls that ends in one finish.
#include <moecl/operator_cost.hpp>

#include <benchmark/benchmark.h>

#include <chrono>
#include <thread>

#include "bench/device.hpp"
#include "bench/roof.hpp"

namespace moecl::bench {

/// A GPU lowers its clock under load. The pause keeps the load of one measurement out of the next.
inline void rest() {
  if (stream().device->caps.type == DeviceType::gpu) std::this_thread::sleep_for(std::chrono::milliseconds(150));
}

/// Runs `enqueue` in chains. Reports the time per call, GFLOP/s, GB/s and the share of the roof.
template <class Enqueue>
void measure(benchmark::State& state, const OperatorCost& cost, Enqueue enqueue, Bound bound = {}) {
  const auto seconds = [&](int calls) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) enqueue();
    stream().finish();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const double first = seconds(1);  // may include compilation
  rest();
  // A finish wakes the host, which takes 10 to 30 us on PoCL: short calls share one finish.
  const int chain = first < 1 && seconds(1) < 2e-3 ? 8 : 1;
  for (auto _ : state) state.SetIterationTime(seconds(chain) / chain);
  const auto per_second = [](double amount) {
    return benchmark::Counter(amount, benchmark::Counter::kIsIterationInvariantRate);
  };
  if (cost.flops > 0)  // without flops, repetitions would vary by NaN, which is no JSON
    state.counters["GFLOP/s"] = per_second(static_cast<double>(cost.flops) / 1e9);
  state.counters["GB/s"] = per_second(static_cast<double>(cost.bytes) / 1e9);
  if (const double least = roof().seconds(cost, bound); least > 0)
    state.counters["% of roof"] = per_second(100 * least);
}

}  // namespace moecl::bench
