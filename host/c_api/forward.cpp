#include "host/c_api/forward.hpp"

#include <moecl/workspace.hpp>

#include <CL/cl.h>

#include "runtime/quotient.hpp"

namespace moecl::c_api {
namespace {

/// The scales of an input that consists of codes, in the form that the layer takes.
TensorView code_scales(const Context& context, const OperandQuant& activations, std::int64_t width,
                       const moecl_forward_args& args) {
  const std::int64_t group = std::max<std::int64_t>(activations.group.columns, 0);
  require(args.expert_input_group == group, "expert_input_group: expected {}, as {}, got {}", group,
          describe(activations), args.expert_input_group);
  const DType scale = activations.scale == ScaleFormat::e8m0 ? DType::u8 : DType::f32;
  return tensor_of(context, args.expert_input_scale, "expert_input_scale", scale, args.tokens,
                   group == 0 ? 1 : quotient_up(width, group));
}

}  // namespace

DType ids_dtype(std::int32_t number, const char* what) {
  const std::optional<DType> type = to_dtype(number, what);
  require(!type || *type == DType::i32 || *type == DType::i64, "{}: expected i32 or i64, got {}", what,
          name(type.value_or(DType::i32)));
  return type.value_or(DType::i32);
}

TensorView vector_of(const Context& context, moecl_device_array array, const char* what, DType dtype,
                     std::int64_t count) {
  if (array.memory == nullptr) return {};
  return {tensor_of(context, array, what, dtype, count, 1).buffer, dtype, {count}};
}

BufferView workspace_of(const Context& context, moecl_device_array workspace, std::uint64_t bytes) {
  if (workspace.memory == nullptr) {
    require(bytes == 0, "workspace: workspace_bytes {} of no cl_mem", bytes);
    return {};
  }
  const BufferView memory = memory_of(context, workspace, WorkspaceLayout::alignment_bytes, "workspace");
  require(bytes <= memory.size_bytes, "workspace: workspace_bytes {} leave a cl_mem with {} bytes from {} on", bytes,
          memory.size_bytes, workspace.offset_bytes);
  return memory.slice(0, or_default(bytes, memory.size_bytes));
}

MoeForward forward_args(const Context& context, const MoeShape& shape, const MoeLayerOptions& options,
                        std::int64_t local_experts, const moecl_forward_args& args) {
  const std::int64_t tokens = args.tokens, top_k = shape.router.top_k, width = shape.expert_width();
  require(tokens >= 0, "tokens: {} is negative", tokens);
  const DType stored = options.dtype,
              out = args.out_dtype == MOECL_DEFAULT_DTYPE ? stored : dtype_of(args.out_dtype, "out_dtype"),
              logits =
                  args.logits_dtype == MOECL_DEFAULT_DTYPE ? DType::f32 : dtype_of(args.logits_dtype, "logits_dtype"),
              ids = ids_dtype(args.ids_dtype, "ids_dtype"),
              input = to_dtype(args.expert_input_dtype, "expert_input_dtype").value_or(stored);
  const auto optional = [&](moecl_device_array array, const char* what, DType dtype, std::int64_t columns) {
    return optional_tensor(context, array, what, dtype, tokens, columns);
  };
  MoeForward forward;
  const bool needs_x =
      args.expert_input.memory == nullptr && args.ids.memory == nullptr && args.given_logits.memory == nullptr;
  if (tokens == 0 || args.x.memory != nullptr || needs_x)
    forward.x = tensor_of(context, args.x, "x", stored, tokens, shape.hidden);
  // A rank without tokens has no memory, but its input must have the same form as those of the other ranks.
  const bool codes = args.expert_input_scale.memory != nullptr || (tokens == 0 && !is_activation_dtype(input));
  if (tokens > 0 || !codes)
    forward.expert_input = optional(args.expert_input, "expert_input", input, width);
  else
    forward.expert_input = tensor_of(context, args.expert_input, "expert_input", input, 0, width);
  if (codes) forward.expert_input_scale = code_scales(context, options.activations, width, args);
  forward.given_logits = optional(args.given_logits, "given_logits", logits, shape.choices());
  forward.token_ids =
      vector_of(context, args.token_ids, "token_ids", ids_dtype(args.token_ids_dtype, "token_ids_dtype"), tokens);
  forward.ids = optional(args.ids, "ids", ids, top_k);
  forward.weights = optional(args.weights, "weights", DType::f32, top_k);
  forward.finished = vector_of(context, args.finished, "finished", DType::u8, tokens);
  forward.out = optional(args.out, "out", out, width);
  if (tokens == 0)
    forward.routed_out = tensor_of(context, args.routed_out, "routed_out", out, tokens, width);
  else
    forward.routed_out = optional(args.routed_out, "routed_out", out, width);
  forward.shared_out = optional(args.shared_out, "shared_out", out, shape.hidden);
  forward.router_logits = optional(args.router_logits, "router_logits", DType::f32, shape.choices());
  forward.topk_ids = optional(args.topk_ids, "topk_ids", ids, top_k);
  forward.topk_weights = optional(args.topk_weights, "topk_weights", DType::f32, top_k);
  forward.expert_rows = optional_tensor(context, args.expert_rows, "expert_rows", out, tokens * top_k, width);
  forward.expert_num_tokens = vector_of(context, args.expert_num_tokens, "expert_num_tokens", ids, local_experts);
  forward.expert_load = vector_of(context, args.expert_load, "expert_load", DType::i64, local_experts);
  forward.workspace = workspace_of(context, args.workspace, args.workspace_bytes);
  if (args.fault.memory != nullptr) forward.fault = fault_word(context, args.fault);
  return forward;
}

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

namespace {

struct WaitedEvents {
  uint32_t count;
  cl_event const* events;
};

template <class Enqueue>
moecl_status enqueue_of(const moecl_layer* layer, moecl_stream* stream, const moecl_forward_args* args,
                        const char* what, WaitedEvents waited, cl_event* out_event, Enqueue enqueue) {
  return guarded([&] {
    const moecl_layer& of = required(layer, "layer");
    const StreamView on = required(stream, "stream").stream;
    require(on.context->handle() == of.context->handle(), "{}: the stream and the layer are of different cl_contexts",
            what);
    const MoeShape& shape = of.layer.shape();
    const MoeForward forward =
        forward_args(*on.context, shape, of.layer.options(), shape.experts, read_struct(args, "args"));
    Event done;
    const Submit submit{wait_list(*on.context, waited.count, waited.events), out_event != nullptr ? &done : nullptr};
    enqueue(of.layer, on, forward, submit);
    if (out_event != nullptr) *out_event = done.release();
  });
}

}  // namespace

moecl_status moecl_layer_forward(const moecl_layer* layer, moecl_stream* stream, const moecl_forward_args* args,
                                 uint32_t num_wait_events, cl_event const* wait_events, cl_event* out_event) {
  return enqueue_of(layer, stream, args, "forward", {num_wait_events, wait_events}, out_event,
                    [](const MoeLayer& of, StreamView on, const MoeForward& forward, Submit submit) {
                      of.forward(on, forward, submit);
                    });
}

moecl_status moecl_layer_prefetch(const moecl_layer* layer, moecl_stream* stream, const moecl_forward_args* args,
                                  uint32_t num_wait_events, cl_event const* wait_events, cl_event* out_event) {
  return enqueue_of(layer, stream, args, "prefetch", {num_wait_events, wait_events}, out_event,
                    [](const MoeLayer& of, StreamView on, const MoeForward& forward, Submit submit) {
                      of.prefetch(on, forward, forward.workspace, submit);
                    });
}

moecl_status moecl_check_fault(moecl_stream* stream, moecl_device_array fault) {
  return guarded([&] {
    const StreamView on = required(stream, "stream").stream;
    check_fault(on, fault_word(*on.context, fault));
  });
}
