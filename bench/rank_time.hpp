#pragma once
// Timing of what several ranks do together: a GPU a rank; where there are fewer, ranks share the device.
#include <moecl/communicator.hpp>
#include <moecl/context.hpp>

#include <benchmark/benchmark.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "bench/device_time.hpp"

namespace moecl::bench {

/// Medians over steps of the least of all ranks: who begins a step last waits for nobody else.
struct RankTimes {
  double kernels_us, exchange_us;  ///< all kernels of a step, and those that put into peers' memory, by the device
};

using RankStep = std::function<void()>;

/// Times the step that `make` gives each rank, in chains: the host's clock of a chain that all ranks do together, a
/// step each; then, where each rank has a GPU, the kernels of a chain by the GPU's clock, as counters. Returns those,
/// or nothing where ranks share a device or a step failed, which is then the state's error.
std::optional<RankTimes> measure_ranks(benchmark::State& state, std::int64_t ranks,
                                       const std::function<RankStep(Communicator&)>& make);

/// Times the processor time that such a step costs the host thread of rank 0, in chains; the finish is not counted.
/// @param peer_memory  given: each rank has a context of one device, and its peers put into this memory
void measure_enqueue_of_ranks(benchmark::State& state, std::int64_t ranks,
                              const std::function<RankStep(Communicator&)>& make,
                              const std::shared_ptr<PeerMemory>& peer_memory = nullptr);

/// The GPUs of the kind that benchmarks run on.
std::vector<Device> gpus();

}  // namespace moecl::bench
