#include "host/npu/c_api.hpp"

#include <moecl/workspace.hpp>

#include "host/npu/steps.hpp"

namespace moecl::c_api {
namespace {

/// Longer than any list that an operator takes. A larger count is one that the caller did not set.
constexpr std::int64_t longest_list = 1 << 20;

}  // namespace

TensorView to_view(const Context& context, const moecl_tensor& from, const char* what) {
  if (from.rank == 0) return {};
  require(from.rank > 0 && from.rank <= TensorView::max_rank, "{}: rank {} is not in [0, {}]", what, from.rank,
          static_cast<int>(TensorView::max_rank));
  const std::optional<DType> dtype = to_dtype(from.dtype, what);
  require(dtype.has_value(), "{}: dtype is not set", what);
  TensorView view;
  npu::set_shape(view, *dtype, {from.shape, from.shape + from.rank});
  if (std::any_of(from.stride, from.stride + from.rank, [](std::int64_t stride) { return stride != 0; }))
    std::copy(from.stride, from.stride + from.rank, view.stride.begin());
  if (from.memory != nullptr)
    view.buffer = memory_of(context, {from.memory, from.offset_bytes}, size_bytes(*dtype), what);
  return view;
}

npu::TensorList to_list(const Context& context, const moecl_tensor_list& from, const char* what) {
  require(from.count >= 0 && from.count <= longest_list && (from.count == 0 || from.items != nullptr),
          "{}: {} tensors at {}", what, from.count, from.items == nullptr ? "NULL" : "an array");
  npu::TensorList list;
  for (std::int64_t i = 0; i < from.count; ++i) list.push_back(to_view(context, from.items[i], what));
  return list;
}

std::vector<std::int64_t> to_ints(const moecl_int_list& from, const char* what) {
  require(from.count >= 0 && from.count <= longest_list && (from.count == 0 || from.items != nullptr),
          "{}: {} numbers at {}", what, from.count, from.items == nullptr ? "NULL" : "an array");
  return {from.items, from.items + from.count};
}

void describe_output(const TensorView& from, moecl_tensor& to) {
  to.dtype = from.present() ? number_of(from.dtype) : MOECL_DEFAULT_DTYPE;
  to.rank = from.rank;
  std::copy(from.shape.begin(), from.shape.end(), to.shape);
  std::copy(from.stride.begin(), from.stride.end(), to.stride);
}

void describe_outputs(const npu::TensorList& from, moecl_tensor_list& to, const char* what) {
  require(to.items != nullptr && to.count >= static_cast<std::int64_t>(from.size()),
          "{}: room for {} tensors is needed, got {}", what, from.size(), to.count);
  to.count = static_cast<std::int64_t>(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) describe_output(from[i], to.items[i]);
}

npu::Call to_call(const Context& context, const moecl_call* from) {
  const auto given = read_options(from, "call");
  npu::Call call;
  if (given.workspace.memory != nullptr) {
    const BufferView memory = memory_of(context, given.workspace, WorkspaceLayout::alignment_bytes, "workspace");
    require(given.workspace_bytes <= memory.size_bytes,
            "workspace: workspace_bytes {} leave a cl_mem with {} bytes from {} on", given.workspace_bytes,
            memory.size_bytes, given.workspace.offset_bytes);
    call.workspace = memory.slice(0, or_default(given.workspace_bytes, memory.size_bytes));
  }
  require(given.validation >= MOECL_STRICT && given.validation <= MOECL_COMPATIBLE,
          "call.validation: {} is not in [0, 1]", given.validation);
  require(given.tail >= MOECL_TAIL_UNTOUCHED && given.tail <= MOECL_TAIL_ZERO, "call.tail: {} is not in [0, 2]",
          given.tail);
  call.validation = static_cast<npu::Validation>(given.validation);
  call.tail = static_cast<npu::Tail>(given.tail);
  if (given.fault.memory != nullptr)
    call.fault = TensorView(memory_of(context, given.fault, sizeof(std::int32_t), "fault"), DType::i32, {4});
  return call;
}

}  // namespace moecl::c_api
