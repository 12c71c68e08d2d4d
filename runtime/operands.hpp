#pragma once
// Checks that the tensors of a call do not overlap, as memory of an output is overwritten while others read it.
#include <moecl/tensor_view.hpp>

#include <span>

namespace moecl {

enum class Access : std::uint8_t { read, written };

/// Memory that a call uses, and its name in error messages.
struct Operand {
  /// Errors: device_error
  Operand(const char* name, Access access, const TensorView& view);
  Operand(const char* name, Access access, BufferView memory);

  const char* name;
  Access access;
  _cl_mem* memory = nullptr;               ///< for a sub-buffer its parent; null: no memory is used
  std::uint64_t begin = 0, end = 0;        ///< bytes of `memory`
  std::uint64_t pitch = 0, row_bytes = 0;  ///< of rows with gaps between them; 0: all of [begin, end) is used
};

/// Allocates nothing if no operands overlap.
/// Errors: invalid_argument  two share bytes, and one of them is written
void expect_apart(std::span<const Operand> operands);

}  // namespace moecl
