#pragma once
// Compiled kernels of a context and the one way to launch them.
#include <moecl/context.hpp>
#include <moecl/tensor_view.hpp>
#include <moecl/trace.hpp>

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

namespace moecl {

/// OpenCL C text embedded by the build, with every #include already resolved. Lifetime: outlives every context that
/// compiled it, which tells sources apart by their address.
struct ProgramSource {
  const char* name;
  std::string_view text;
};

/// Which kernel, compiled how. `options` are -D definitions; who made them keeps them.
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
  const void* value;  ///< of memory: a cl_mem, which may be null; of local memory: null
};

class KernelLibrary;

namespace detail {

/// A tensor is its memory; where in that it begins is a member of the kernel's struct, see `first_element`.
inline KernelArg kernel_arg(const TensorView& view) {
  return {KernelArg::Kind::memory, sizeof(view.buffer.handle), &view.buffer.handle};
}
inline KernelArg kernel_arg(const LocalMemory& memory) { return {KernelArg::Kind::local, memory.size_bytes, nullptr}; }
/// The struct of a kernel's other arguments, <op>_args.h.
template <class T>
KernelArg kernel_arg(const T& args) {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_same_v<T, bool>);
  return {KernelArg::Kind::value, sizeof(T), &args};
}

/// Whether the last argument is a struct.
template <class... Args>
inline constexpr bool end_in_struct = [] {
  using Last = std::tuple_element_t<sizeof...(Args) - 1, std::tuple<Args...>>;
  return std::is_class_v<Last> && !std::is_same_v<Last, TensorView> && !std::is_same_v<Last, LocalMemory>;
}();

void launch(StreamView stream, const KernelKey& key, const NdRange& range, const Submit& submit, WorkInfo info,
            std::span<const KernelArg> args);

}  // namespace detail

/// The first element of a tensor in its memory, 0 of an absent one: what a kernel's struct has as <tensor>_first.
inline long first_element(const TensorView& view) {
  return view.present() ? static_cast<long>(view.offset_elements()) : 0;
}

/// Sets the arguments in the kernel's order and enqueues it: memory, local memory, then the struct of all else. Kernels
/// without a struct (UNCONVERTED in tools/check_kernels.py) take values by position, and behind each tensor its first
/// element. Sizes and arity are checked.
///
/// Empty:  a global size with a 0 enqueues nothing (but honours `submit` with a marker)
/// Errors: build_failed, device_error, invalid_argument (arity)
template <class... Args>
void launch(StreamView stream, const KernelKey& key, const NdRange& range, const Submit& submit, WorkInfo info,
            const Args&... args) {
  if constexpr (detail::end_in_struct<Args...>) {
    const std::array<KernelArg, sizeof...(Args)> list{detail::kernel_arg(args)...};
    detail::launch(stream, key, range, submit, std::move(info), list);
  } else {
    std::array<long, sizeof...(Args)> firsts;
    std::array<KernelArg, (sizeof...(Args) + ... + std::size_t{std::is_same_v<Args, TensorView>})> list;
    std::size_t count = 0, tensors = 0;
    const auto append = [&](const auto& arg) {
      list[count++] = detail::kernel_arg(arg);
      if constexpr (std::is_same_v<decltype(arg), const TensorView&>) {
        firsts[tensors] = first_element(arg);
        list[count++] = detail::kernel_arg(firsts[tensors++]);
      }
    };
    (append(args), ...);
    detail::launch(stream, key, range, submit, std::move(info), list);
  }
}

}  // namespace moecl
