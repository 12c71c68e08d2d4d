#pragma once
#include "tests/simulated_gpu/warp.hpp"

namespace simulated_gpu {

/// Runs a launch with arbitrary timing, which the seed determines. Warps get turns of any length in any order. An
/// asynchronous operation completes at any time between its issue and the wait for it.
/// @throws Fault  the program does something that the hardware does not allow, or it waits forever
void run(const Launch& launch, int compute_units, unsigned seed);

}  // namespace simulated_gpu
