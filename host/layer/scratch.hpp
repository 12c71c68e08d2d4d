#pragma once
// Matrices in a workspace.
#include <moecl/tensor_view.hpp>

namespace moecl {

/// Bytes of [rows, columns] f32.
inline std::uint64_t f32_bytes(std::int64_t rows, std::int64_t columns) {
  return static_cast<std::uint64_t>(rows * columns) * size_bytes(DType::f32);
}

/// [rows, columns] f32 at a byte offset of the workspace.
inline TensorView f32_rows(BufferView workspace, std::uint64_t offset, std::int64_t rows, std::int64_t columns) {
  return TensorView(workspace.slice(offset, f32_bytes(rows, columns)), DType::f32, {rows, columns});
}

/// [rows, columns] of a type of at most 32 bits, in the place of as many f32.
inline TensorView narrow_rows(BufferView workspace, std::uint64_t offset, DType dtype, std::int64_t rows,
                              std::int64_t columns) {
  return TensorView(workspace.slice(offset, static_cast<std::uint64_t>(rows * columns) * size_bytes(dtype)), dtype,
                    {rows, columns});
}

/// The caller's tensor where there is one, else such rows.
inline TensorView given_or(const TensorView& given, BufferView workspace, std::uint64_t offset, DType dtype,
                           std::int64_t rows, std::int64_t columns) {
  return given.present() ? given : narrow_rows(workspace, offset, dtype, rows, columns);
}

}  // namespace moecl
