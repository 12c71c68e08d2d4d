#pragma once
// Times what several ranks do together. Each rank has a GPU; where there are fewer GPUs, ranks share the device.
#include <moecl/communicator.hpp>
#include <moecl/context.hpp>

#include <benchmark/benchmark.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "bench/device_time.hpp"

namespace moecl::bench {

/// Medians over steps. Each step counts the minimum over ranks: the rank that begins a step last waits for no other.
struct RankTimes {
  double kernels_us, exchange_us;  ///< device time of all kernels of a step, and of those that put into peers' memory
};

using RankStep = std::function<void()>;

/// Times the step that `make` gives each rank, in chains that all ranks do together, by the host's clock. Then, where
/// each rank has a GPU, times the kernels of a chain by the GPU's clock, as counters. Returns these device times;
/// nothing where ranks share a device, or where a step failed, whose error is then the state's.
std::optional<RankTimes> measure_ranks(benchmark::State& state, std::int64_t ranks,
                                       const std::function<RankStep(Communicator&)>& make);

/// Times the processor time that such a step costs the host thread of rank 0, in chains; the finish is not counted.
/// @param peer_memory  if given, each rank has its own context of one device, and its peers put into this memory
void measure_enqueue_of_ranks(benchmark::State& state, std::int64_t ranks,
                              const std::function<RankStep(Communicator&)>& make,
                              const std::shared_ptr<PeerMemory>& peer_memory = nullptr);

/// All GPUs of the kind that benchmarks run on.
std::vector<Device> gpus();

}  // namespace moecl::bench
