#pragma once
// The device that benchmarks run on.
#include <moecl/context.hpp>
#include <moecl/stream.hpp>

#include <memory>

namespace moecl::bench {

/// Sets the device of all benchmarks, from here to the end of the process. The context can trace.
void use(std::unique_ptr<Context> context);
/// From here on the device uses this tuning, whatever its tables say.
void use(Tuning tuning);
/// A queue of that device, without profiling. If no device was set, it is the first usable one, or the one that
/// MOECL_PLATFORM / MOECL_DEVICE name by a part of its name.
StreamView stream();

}  // namespace moecl::bench
