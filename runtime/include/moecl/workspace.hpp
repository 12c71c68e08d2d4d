#pragma once
#include <moecl/buffer.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <initializer_list>

namespace moecl {

/// Sums up a workspace before it is allocated: each `add` reserves an aligned range and returns its offset.
class WorkspaceLayout {
 public:
  static constexpr std::uint64_t alignment_bytes = 256;
  /// Alignment of the first byte of a layer's workspace: kernels load vectors of that many bytes.
  static constexpr std::uint64_t base_alignment_bytes = 16;
  /// Errors: invalid_argument  the total overflows 63 bits
  std::uint64_t add(std::uint64_t size_bytes);
  /// Reserves a contiguous tensor without memory: `tensor_in` places it in a workspace.
  /// Errors: as above; invalid_argument  a negative extent, or its size overflows
  TensorView add(DType dtype, std::initializer_list<std::int64_t> dims);
  std::uint64_t total_bytes() const noexcept { return total_; }

 private:
  std::uint64_t total_ = 0;
};

/// A tensor of a layout, in the workspace's memory. Errors: invalid_argument  the tensor ends beyond the workspace
TensorView tensor_in(BufferView workspace, const TensorView& place);

/// Reusable scratch memory of one stream. Grows, never shrinks; contents are undefined between calls.
///
/// Async: growing releases the old memory only after commands that use it have finished (OpenCL's own rule).
class Workspace {
 public:
  /// Errors: out_of_memory, invalid_argument as Buffer
  BufferView reserve(Context& context, std::uint64_t size_bytes);
  std::uint64_t capacity_bytes() const noexcept { return buffer_.size_bytes(); }

 private:
  Buffer buffer_;
};

}  // namespace moecl
