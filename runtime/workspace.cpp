#include <moecl/workspace.hpp>

#include <limits>

#include "runtime/check.hpp"
#include "runtime/quotient.hpp"

namespace moecl {

std::uint64_t WorkspaceLayout::add(std::uint64_t size_bytes) {
  constexpr std::uint64_t limit = std::numeric_limits<std::int64_t>::max() - alignment_bytes;
  require(size_bytes <= limit - total_, "workspace: {} + {} bytes overflow", total_, size_bytes);
  const std::uint64_t offset = total_;
  total_ += quotient_up(size_bytes, alignment_bytes) * alignment_bytes;
  return offset;
}

TensorView WorkspaceLayout::add(DType dtype, std::initializer_list<std::int64_t> dims) {
  TensorView place({nullptr, 0, std::numeric_limits<std::uint64_t>::max()}, dtype, dims);
  const std::uint64_t size = place.size_bytes();
  place.buffer = {nullptr, add(size), size};
  return place;
}

TensorView tensor_in(BufferView workspace, const TensorView& place) {
  TensorView tensor = place;
  tensor.buffer = workspace.slice(place.buffer.offset_bytes, place.buffer.size_bytes);
  return tensor;
}

BufferView Workspace::reserve(Context& context, std::uint64_t size_bytes) {
  if (size_bytes > buffer_.size_bytes()) buffer_ = Buffer(context, size_bytes);
  return buffer_.view().slice(0, size_bytes);
}

}  // namespace moecl
