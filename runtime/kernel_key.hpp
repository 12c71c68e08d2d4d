#pragma once
// The key of a kernel, and the arguments of a launch.
#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace moecl {

/// OpenCL C text embedded by the build, with every #include already resolved. Lifetime: outlives every context that
/// compiled it; a context tells sources apart by their address.
struct ProgramSource {
  const char* name;
  std::string_view text;
};

/// A kernel and how it is compiled. `options` are -D definitions; the caller keeps their text.
struct KernelKey {
  const ProgramSource* source;
  std::string_view options;
  const char* kernel;
};

struct NdRange {
  std::array<std::size_t, 3> global{1, 1, 1};
  std::array<std::size_t, 3> local{1, 1, 1};
};

/// `__local` memory of that many bytes as a kernel argument.
struct LocalMemory {
  std::size_t size_bytes;
};

/// One kernel argument as clSetKernelArg wants it.
struct KernelArg {
  enum class Kind : std::uint8_t { memory, local, value };
  Kind kind;
  std::size_t size_bytes;
  const void* value;  ///< memory: points to a cl_mem, which may be null; local memory: null
};

}  // namespace moecl
