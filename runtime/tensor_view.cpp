#include <moecl/tensor_view.hpp>

#include <fmt/ranges.h>

#include "runtime/check.hpp"

namespace moecl {

TensorView::TensorView(BufferView memory, DType type, std::initializer_list<std::int64_t> dims)
    : buffer(memory), dtype(type), rank(static_cast<int>(dims.size())) {
  require(rank >= 1 && rank <= max_rank, "tensor: rank {} is not in [1, {}]", rank, max_rank);
  std::copy(dims.begin(), dims.end(), shape.begin());
  std::int64_t count = 1;
  for (int i = rank - 1; i >= 0; --i) {
    require(shape[i] >= 0, "tensor: negative extent in {}", *this);
    stride[i] = count;
    require(!__builtin_mul_overflow(count, shape[i], &count), "tensor: size of {} overflows", *this);
  }
  require(static_cast<std::uint64_t>(count) <= memory.size_bytes / moecl::size_bytes(type),
          "tensor: {} needs {} elements, its memory has {} bytes", *this, count, memory.size_bytes);
}

std::int64_t TensorView::elements() const noexcept {
  if (rank == 0) return 0;
  std::int64_t count = 1;
  for (int i = 0; i < rank; ++i) count *= shape[i];
  return count;
}

std::uint64_t TensorView::size_bytes() const noexcept {
  return static_cast<std::uint64_t>(elements()) * moecl::size_bytes(dtype);
}

bool TensorView::contiguous() const noexcept {
  if (elements() == 0) return true;
  std::int64_t expected = 1;
  for (int i = rank - 1; i >= 0; --i) {
    if (shape[i] > 1 && stride[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

std::uint64_t TensorView::offset_elements() const {
  const std::uint64_t size = moecl::size_bytes(dtype);
  require(buffer.offset_bytes % size == 0, "tensor: byte offset {} is no multiple of {}'s {} bytes",
          buffer.offset_bytes, name(dtype), size);
  return buffer.offset_bytes / size;
}

TensorView TensorView::rows(std::int64_t first, std::int64_t count) const {
  require(rank >= 1 && first >= 0 && count >= 0 && count <= shape[0] - first, "tensor: rows [{}, {} + {}) leave {}",
          first, first, count, *this);
  TensorView view = *this;
  const std::uint64_t skipped = static_cast<std::uint64_t>(first * stride[0]) * moecl::size_bytes(dtype);
  view.shape[0] = count;
  view.buffer = {buffer.handle, buffer.offset_bytes + skipped,
                 buffer.size_bytes - std::min(skipped, buffer.size_bytes)};
  return view;
}

std::string TensorView::describe() const {
  if (!present()) return "absent";
  return fmt::format("{}[{}]", name(dtype), fmt::join(shape.begin(), shape.begin() + rank, ", "));
}

void expect_tensor(const TensorView& view, const char* what, DType dtype, std::initializer_list<std::int64_t> dims) {
  bool same = view.rank == static_cast<int>(dims.size()) && view.dtype == dtype;
  int i = 0;
  for (const std::int64_t extent : dims) {
    same = same && (extent < 0 || view.shape[i] == extent);
    ++i;
  }
  if (!same)
    fail(ErrorCode::invalid_argument, "{}: expected {}[{}], got {}", what, name(dtype), fmt::join(dims, ", "),
         view.describe());
}

void expect_memory(const TensorView& view, const char* what, bool any_order) {
  if (!view.present()) return;
  require(view.rank <= TensorView::max_rank, "{}: {} dimensions", what, view.rank);
  std::uint64_t last = 0;
  for (int d = 0; d < view.rank; ++d) {
    require(view.shape[d] >= 0, "{}: negative extent in {}", what, view);
    if (view.shape[d] == 0) return;
    std::uint64_t reach = 0;
    require(view.stride[d] >= 0 &&
                !__builtin_mul_overflow(static_cast<std::uint64_t>(view.shape[d] - 1),
                                        static_cast<std::uint64_t>(view.stride[d]), &reach) &&
                !__builtin_add_overflow(last, reach, &last),
            "{}: strides of {} overflow", what, view);
  }
  const int inner = view.rank - 1;
  require(any_order || view.stride[inner] == 1 || view.shape[inner] == 1,
          "{}: the last dimension of {} has stride {}, expected 1", what, view, view.stride[inner]);
  const std::uint64_t size = size_bytes(view.dtype);
  require(view.buffer.handle != nullptr && last < view.buffer.size_bytes / size,
          "{}: {} needs {} elements, its memory has {} bytes", what, view, last + 1, view.buffer.size_bytes);
  require(view.buffer.offset_bytes % size == 0, "{}: byte offset {} is no multiple of {}'s {} bytes", what,
          view.buffer.offset_bytes, name(view.dtype), size);
}

}  // namespace moecl
