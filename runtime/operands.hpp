#pragma once
// That the tensors of a call are apart: an output that something else lies in would be written while that is read.
#include <moecl/tensor_view.hpp>

#include <span>

namespace moecl {

enum class Access : std::uint8_t { read, written };

/// Memory that a call uses, and what the call calls it.
struct Operand {
  /// Errors: device_error
  Operand(const char* name, Access access, const TensorView& view);
  Operand(const char* name, Access access, BufferView memory);

  const char* name;
  Access access;
  _cl_mem* memory = nullptr;               ///< the parent of a sub-buffer; null: it uses none
  std::uint64_t begin = 0, end = 0;        ///< bytes of `memory`
  std::uint64_t pitch = 0, row_bytes = 0;  ///< of rows that lie apart; 0: all of [begin, end) is used
};

/// Nothing is allocated while they are apart.
/// Errors: invalid_argument  two share bytes, and one of them is written
void expect_apart(std::span<const Operand> operands);

}  // namespace moecl
