#pragma once
#include "tests/simulated_gpu/warp.hpp"

namespace simulated_gpu {

/// Runs a launch on a GPU that takes its time: warps have turns of any length in any order, and what is asynchronous
/// happens at any time from when it is asked for to when it is waited for, as the seed has it.
/// @throws Fault  the hardware does not allow what the program does, or it waits for ever
void run(const Launch& launch, int compute_units, unsigned seed);

}  // namespace simulated_gpu
