#pragma once
#include <moecl/trace.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace moecl::bench {

/// A command of a trace.
struct TracedKernel {
  std::string name, variant;
  WorkKind kind = WorkKind::kernel;
  double us = 0;
  std::uint64_t bytes = 0, flops = 0;  ///< as WorkInfo counts them
};

/// All commands of a trace, in the order of their enqueueing. Stops the host until the trace is complete.
/// Errors: io_error  the folder for temporary files cannot be written
std::vector<TracedKernel> traced_kernels(Trace& trace);

}  // namespace moecl::bench
