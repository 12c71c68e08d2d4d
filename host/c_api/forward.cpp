#include "host/c_api/forward.hpp"

#include <moecl/workspace.hpp>

#include <CL/cl.h>

namespace moecl::c_api {
namespace {

BufferView workspace_of(const Context& context, const moecl_forward_args& args) {
  if (args.tokens == 0 && args.workspace.memory == nullptr) return {};
  const BufferView memory = memory_of(context, args.workspace, WorkspaceLayout::alignment_bytes, "workspace");
  require(args.workspace_bytes <= memory.size_bytes,
          "workspace: workspace_bytes {} leave a cl_mem with {} bytes from {} on", args.workspace_bytes,
          memory.size_bytes, args.workspace.offset_bytes);
  return memory.slice(0, or_default(args.workspace_bytes, memory.size_bytes));
}

MoeLayer::Forward layer_args(const Context& context, const MoeLayer& layer, const moecl_forward_args& args) {
  MoeLayer::Forward forward = forward_args(context, layer, args);
  forward.workspace = workspace_of(context, args);
  return forward;
}

}  // namespace

TensorView fault_word(const Context& context, moecl_device_array array) {
  constexpr std::uint64_t word_bytes = 16;
  const BufferView memory = memory_of(context, array, sizeof(std::int32_t), "fault");
  require(memory.size_bytes >= word_bytes, "fault: needs {} bytes, the cl_mem has {} from byte offset {} on",
          word_bytes, memory.size_bytes, array.offset_bytes);
  return {memory, DType::i32, {4}};
}

}  // namespace moecl::c_api

using namespace moecl;
using namespace moecl::c_api;

moecl_status moecl_layer_forward(const moecl_layer* layer, moecl_stream* stream, const moecl_forward_args* args,
                                 uint32_t num_wait_events, cl_event const* wait_events, cl_event* out_event) {
  return guarded([&] {
    const moecl_layer& of = required(layer, "layer");
    const StreamView on = required(stream, "stream").stream;
    require(on.context->handle() == of.context->handle(),
            "forward: the stream and the layer are of different cl_contexts");
    const MoeLayer::Forward forward = layer_args(*on.context, of.layer, read_struct(args, "args"));
    Event done;
    Submit submit{wait_list(*on.context, num_wait_events, wait_events), out_event != nullptr ? &done : nullptr};
    of.layer.forward(on, forward, submit);
    if (out_event != nullptr) *out_event = done.release();
  });
}

moecl_status moecl_check_fault(moecl_stream* stream, moecl_device_array fault) {
  return guarded([&] {
    const StreamView on = required(stream, "stream").stream;
    check_fault(on, fault_word(*on.context, fault));
  });
}
