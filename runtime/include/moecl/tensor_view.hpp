#pragma once
#include <moecl/buffer.hpp>
#include <moecl/dtype.hpp>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace moecl {

/// A non-owning view of device memory with a dtype and a shape of up to four dimensions.
///
/// The last dimension is contiguous; the others may be strided (`stride`, in elements). A default view is "absent".
struct TensorView {
  static constexpr int max_rank = 4;

  BufferView buffer;
  DType dtype = DType::f32;
  int rank = 0;
  std::array<std::int64_t, max_rank> shape{};
  std::array<std::int64_t, max_rank> stride{};

  TensorView() = default;
  /// Contiguous, starting at the beginning of `memory`.
  /// Errors: invalid_argument  the shape needs more bytes than the view has, or its size overflows
  TensorView(BufferView memory, DType type, std::initializer_list<std::int64_t> dims);

  bool present() const noexcept { return rank != 0; }
  std::int64_t elements() const noexcept;
  std::uint64_t size_bytes() const noexcept;
  bool contiguous() const noexcept;
  /// First element, counted in elements from the start of the cl_mem.
  /// Errors: invalid_argument  the byte offset is no multiple of the element size
  std::uint64_t offset_elements() const;
  /// Rows [first, first + count) of dimension 0.
  TensorView rows(std::int64_t first, std::int64_t count) const;
  /// "f32[33, 96]"
  std::string describe() const;
};

/// Errors: invalid_argument  the view is not `dtype` with that shape; -1 in `dims` accepts any extent. `what` names it.
void expect_tensor(const TensorView& view, const char* what, DType dtype, std::initializer_list<std::int64_t> dims);

/// Errors: invalid_argument  a view with elements has no memory, reaches beyond it or starts between two elements, or
///         its last dimension is strided and `any_order` is false. An absent view is always accepted.
void expect_memory(const TensorView& view, const char* what, bool any_order = false);

}  // namespace moecl
