#pragma once
// Compiled kernels of a context and the one way to launch them.
#include <moecl/context.hpp>
#include <moecl/tensor_view.hpp>
#include <moecl/trace.hpp>

#include <array>
#include <span>
#include <type_traits>

#include "runtime/kernel_key.hpp"

namespace moecl {

namespace detail {

/// A tensor is passed as its cl_mem. Its first element is a member of the kernel's struct, see `first_element`.
inline KernelArg kernel_arg(const TensorView& view) {
  return {KernelArg::Kind::memory, sizeof(view.buffer.handle), &view.buffer.handle};
}
inline KernelArg kernel_arg(const LocalMemory& memory) { return {KernelArg::Kind::local, memory.size_bytes, nullptr}; }
/// The struct of all other arguments, <op>_args.h. Tests and benchmarks pass plain numbers too.
template <class T>
KernelArg kernel_arg(const T& args) {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_same_v<T, bool>);
  return {KernelArg::Kind::value, sizeof(T), &args};
}

void launch(StreamView stream, const KernelKey& key, const NdRange& range, const Submit& submit, WorkInfo info,
            std::span<const KernelArg> args);

}  // namespace detail

/// Index of a tensor's first element in its cl_mem, 0 if absent: the member <tensor>_first of a kernel's struct.
inline long first_element(const TensorView& view) {
  return view.present() ? static_cast<long>(view.offset_elements()) : 0;
}

/// Sets the kernel's arguments and enqueues it. Their order: memory, local memory, then the struct of all others. Sizes
/// and arity are checked.
///
/// Empty:  a global size with a 0 enqueues nothing (but honours `submit` with a marker)
/// Errors: build_failed, device_error, invalid_argument (arity)
template <class... Args>
void launch(StreamView stream, const KernelKey& key, const NdRange& range, const Submit& submit, WorkInfo info,
            const Args&... args) {
  const std::array<KernelArg, sizeof...(Args)> list{detail::kernel_arg(args)...};
  detail::launch(stream, key, range, submit, std::move(info), list);
}

}  // namespace moecl
