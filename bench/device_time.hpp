#pragma once
// Timing of operators for Google Benchmark: the median device sees, host clock around a chain that ends in one finish.
#include <moecl/context.hpp>
#include <moecl/operator_cost.hpp>
#include <moecl/stream.hpp>

#include <benchmark/benchmark.h>

#include <chrono>

namespace moecl::bench {

/// The device that benchmarks run on: the first usable one, or MOECL_PLATFORM / MOECL_DEVICE by part of the name.
StreamView stream();

/// Runs `enqueue` in chains and reports time a call, GFLOP/s and GB/s.
template <class Enqueue>
void measure(benchmark::State& state, const OperatorCost& cost, Enqueue enqueue) {
  constexpr int chain = 8;  // a finish wakes the host, 10 to 30 us on PoCL: share it
  enqueue();
  stream().finish();
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < chain; ++i) enqueue();
    stream().finish();
    state.SetIterationTime(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / chain);
  }
  const auto per_second = [](double amount) {
    return benchmark::Counter(amount, benchmark::Counter::kIsIterationInvariantRate);
  };
  state.counters["GFLOP/s"] = per_second(static_cast<double>(cost.flops) / 1e9);
  state.counters["GB/s"] = per_second(static_cast<double>(cost.bytes) / 1e9);
}

}  // namespace moecl::bench
