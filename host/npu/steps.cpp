#include "host/npu/steps.hpp"

#include <moecl/buffer.hpp>
#include <moecl/context.hpp>

#include <algorithm>

namespace moecl::npu {

Steps::Steps(StreamView stream, const Call& call)
    : device_(*stream.device),
      validation_(call.validation),
      fault_(call.fault),
      enqueuing_(true),
      stream_(stream),
      workspace_(call.workspace) {}

BufferView Steps::scratch_bytes(std::uint64_t size_bytes) {
  const std::uint64_t offset = layout_.add(size_bytes);
  return enqueuing_ ? workspace_.slice(offset, size_bytes) : BufferView{nullptr, offset, size_bytes};
}

TensorView Steps::scratch(DType dtype, std::initializer_list<std::int64_t> dims) {
  const TensorView place = layout_.add(dtype, dims);
  return enqueuing_ ? tensor_in(workspace_, place) : place;
}

void Steps::copy(const TensorView& from, const TensorView& to) {
  require(from.contiguous() && to.contiguous() && from.dtype == to.dtype && from.elements() == to.elements(),
          "copy: {} to {}", from, to);
  if (enqueuing_) enqueue_copy(stream_, from.buffer.slice(0, from.size_bytes()), to.buffer.slice(0, to.size_bytes()));
}

void Steps::fill(const TensorView& view, std::uint32_t pattern) {
  require(view.contiguous(), "fill: {} is not contiguous", view);
  if (enqueuing_) enqueue_fill(stream_, view.buffer.slice(0, view.size_bytes()), pattern);
}

std::vector<std::int64_t> shape_of(const TensorView& view) {
  return {view.shape.begin(), view.shape.begin() + view.rank};
}

void set_shape(TensorView& view, DType dtype, const std::vector<std::int64_t>& dims) {
  require(!dims.empty() && dims.size() <= TensorView::max_rank, "output: {} dimensions, 1 to {} are possible",
          dims.size(), static_cast<int>(TensorView::max_rank));
  view.dtype = dtype;
  view.rank = static_cast<int>(dims.size());
  view.shape = view.stride = {};
  std::copy(dims.begin(), dims.end(), view.shape.begin());
  std::int64_t stride = 1;
  for (int d = view.rank; d-- > 0; stride *= std::max<std::int64_t>(view.shape[d], 1)) view.stride[d] = stride;
}

TensorView reshaped(const TensorView& view, std::initializer_list<std::int64_t> dims) {
  TensorView result = view;
  set_shape(result, view.dtype, dims);
  require(view.contiguous() && result.elements() == view.elements(), "{} cannot be read as {}", view, result);
  return result;
}

TensorView as_rows(const TensorView& view) {
  const std::int64_t width = view.shape[view.rank - 1];
  std::int64_t rows = 1;
  for (int d = 0; d + 1 < view.rank; ++d) rows *= view.shape[d];
  return reshaped(view, {rows, width});
}

}  // namespace moecl::npu
