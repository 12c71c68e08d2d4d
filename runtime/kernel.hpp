#pragma once
// Compiled kernels of a context and the one way to launch them.
#include <moecl/context.hpp>
#include <moecl/tensor_view.hpp>
#include <moecl/trace.hpp>

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace moecl {

/// OpenCL C text embedded by the build, with every #include already resolved. Lifetime: outlives every context that
/// compiled it, which tells sources apart by their address.
struct ProgramSource {
  const char* name;
  std::string_view text;
};

/// Which kernel, compiled how. `options` are -D definitions.
struct KernelKey {
  const ProgramSource* source;
  std::string options;
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
  std::array<unsigned char, 8> value{};
  std::size_t size_bytes = 0;
  bool local = false;
  bool memory = false;  ///< a cl_mem or null, with the index of its first element as the next argument
};

class KernelLibrary;

namespace detail {

template <class T>
KernelArg scalar_arg(const T& value) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8, "a scalar kernel argument has at most 8 bytes");
  KernelArg arg;
  arg.size_bytes = sizeof(T);
  __builtin_memcpy(arg.value.data(), &value, sizeof(T));
  return arg;
}

/// How many kernel arguments a C++ argument becomes.
template <class T>
inline constexpr std::size_t arg_count = std::is_same_v<T, TensorView> ? 2 : 1;

inline void append_args(KernelArg*& next, const LocalMemory& memory) {
  next->size_bytes = memory.size_bytes;
  next++->local = true;
}
/// A tensor is two arguments: `__global T* base, ulong first_element`. An absent one is (NULL, 0).
inline void append_args(KernelArg*& next, const TensorView& view) {
  *next = scalar_arg(view.buffer.handle);
  next++->memory = true;
  *next++ = scalar_arg(view.present() ? view.offset_elements() : std::uint64_t{0});
}
template <class T>
requires(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) void append_args(KernelArg*& next, const T& value) {
  *next++ = scalar_arg(value);
}

void launch(StreamView stream, const KernelKey& key, const NdRange& range, const Submit& submit, WorkInfo info,
            std::span<const KernelArg> args);

}  // namespace detail

/// Sets the arguments in the kernel's order and enqueues it. TensorView passes base and first element; arithmetic types
/// pass by value with their own width (use std::int32_t, std::uint64_t, float: no size_t). The arity is checked.
///
/// Empty:  a global size with a 0 enqueues nothing (but honours `submit` with a marker)
/// Errors: build_failed, device_error, invalid_argument (arity)
template <class... Args>
void launch(StreamView stream, const KernelKey& key, const NdRange& range, const Submit& submit, WorkInfo info,
            const Args&... args) {
  std::array<KernelArg, (detail::arg_count<Args> + ... + 0)> list;
  [[maybe_unused]] KernelArg* next = list.data();
  (detail::append_args(next, args), ...);
  detail::launch(stream, key, range, submit, std::move(info), list);
}

}  // namespace moecl
