#pragma once
// The device that benchmarks run on.
#include <moecl/context.hpp>
#include <moecl/stream.hpp>

#include <memory>

namespace moecl::bench {

/// The device of all benchmarks, from here to the end of the process. The context can trace.
void use(std::unique_ptr<Context> context);
/// From here on that device chooses so, whatever its tables say.
void use(Tuning tuning);
/// A queue of that device without profiling; where nothing was said, of the first usable device, or of MOECL_PLATFORM /
/// MOECL_DEVICE by part of the name.
StreamView stream();

}  // namespace moecl::bench
