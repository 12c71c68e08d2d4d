#pragma once
#include <moecl/buffer.hpp>
#include <moecl/tensor_view.hpp>

#include <initializer_list>

namespace moecl {

/// A contiguous tensor in memory of its own; without elements, that has a byte.
struct DeviceTensor {
  Buffer buffer;
  TensorView view;

  /// What it holds at first is undefined. Errors: as Buffer
  DeviceTensor(Context& context, DType dtype, std::initializer_list<std::int64_t> shape);
  operator TensorView() const noexcept { return view; }
};

}  // namespace moecl
