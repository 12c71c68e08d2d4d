#include "runtime/operands.hpp"

#include <CL/cl.h>

#include "runtime/check.hpp"

namespace moecl {
namespace {

template <class T>
T memory_info(cl_mem memory, cl_mem_info what) {
  T value{};
  check_cl(clGetMemObjectInfo(memory, what, sizeof(value), &value, nullptr), "clGetMemObjectInfo");
  return value;
}

/// Offset one past the last byte of dimensions [first, rank), counted from their first byte.
std::uint64_t extent_bytes(const TensorView& view, int first) {
  std::int64_t last = 0;
  for (int d = first; d < view.rank; ++d) last += (view.shape[d] - 1) * view.stride[d];
  return static_cast<std::uint64_t>(last + 1) * size_bytes(view.dtype);
}

/// Two tensors may be different columns of one matrix in memory.
bool are_other_columns(const Operand& a, const Operand& b) {
  if (a.pitch == 0 || a.pitch != b.pitch) return false;
  const std::uint64_t distance = (b.begin % b.pitch + a.pitch - a.begin % a.pitch) % a.pitch;
  return distance >= a.row_bytes && distance + b.row_bytes <= a.pitch;
}

bool share_bytes(const Operand& a, const Operand& b) {
  return a.memory != nullptr && a.memory == b.memory && a.begin < b.end && b.begin < a.end && !are_other_columns(a, b);
}

}  // namespace

Operand::Operand(const char* what, Access use, BufferView view) : name(what), access(use) {
  if (view.handle == nullptr || view.size_bytes == 0) return;
  const auto parent = memory_info<cl_mem>(view.handle, CL_MEM_ASSOCIATED_MEMOBJECT);
  memory = parent != nullptr ? parent : view.handle;
  begin = view.offset_bytes + (parent != nullptr ? memory_info<std::size_t>(view.handle, CL_MEM_OFFSET) : 0);
  end = begin + view.size_bytes;
}

Operand::Operand(const char* what, Access use, const TensorView& view)
    : Operand(what, use,
              view.elements() == 0 ? BufferView()
                                   : BufferView{view.buffer.handle, view.buffer.offset_bytes, extent_bytes(view, 0)}) {
  if (view.elements() == 0 || view.rank < 2 || view.shape[0] == 1) return;
  pitch = static_cast<std::uint64_t>(view.stride[0]) * size_bytes(view.dtype);
  row_bytes = extent_bytes(view, 1);
}

void expect_apart(std::span<const Operand> operands) {
  for (std::size_t i = 0; i < operands.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      const Operand &a = operands[j], &b = operands[i];
      if (a.access == Access::read && b.access == Access::read) continue;
      require(!share_bytes(a, b), "{} and {} overlap: bytes [{}, {}) and [{}, {}) of one buffer", a.name, b.name,
              a.begin, a.end, b.begin, b.end);
    }
}

}  // namespace moecl
