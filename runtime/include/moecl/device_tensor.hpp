#pragma once
#include <moecl/buffer.hpp>
#include <moecl/tensor_view.hpp>

#include <initializer_list>

namespace moecl {

/// A contiguous tensor in a buffer of its own. A tensor without elements has a buffer of one byte.
struct DeviceTensor {
  Buffer buffer;
  TensorView view;

  /// The initial contents are undefined. Errors: as Buffer
  DeviceTensor(Context& context, DType dtype, std::initializer_list<std::int64_t> shape);
  operator TensorView() const noexcept { return view; }
};

}  // namespace moecl
