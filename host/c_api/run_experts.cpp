// The C interface that runs a layer's experts inside an exchange of the caller's own.
#include <moecl/expert_rows.hpp>
#include <moecl/run_experts.h>

#include "host/c_api/forward.hpp"
#include "host/c_api/layer.hpp"
#include "host/c_api/parallel.hpp"
#include "runtime/quotient.hpp"

namespace moecl::c_api {
namespace {

/// The rows of a dispatcher or of the caller. @param experts  The number of the layer's experts here
ExpertRows expert_rows(const Context& context, const MoeShape& shape, const MoeLayerOptions& options,
                       std::int64_t experts, const moecl_expert_args& args) {
  const auto from = read_struct(args.rows, "args.rows");
  const std::int64_t width = shape.expert_width();
  for (const std::int64_t count : {from.rows, from.source_rows, from.rows_per_expert, from.tokens, from.slots})
    require(count >= 0, "args.rows: {} rows of {}, {} an expert, {} tokens of {} slots", from.rows, from.source_rows,
            from.rows_per_expert, from.tokens, from.slots);
  const DType out = args.out_dtype == MOECL_DEFAULT_DTYPE ? DType::f32 : dtype_of(args.out_dtype, "out_dtype"),
              counts = ids_dtype(args.expert_num_tokens_dtype, "expert_num_tokens_dtype");
  ExpertRows rows;
  rows.rows = from.rows;
  rows.rows_per_expert = from.rows_per_expert;
  rows.index_divisor = from.index_divisor;
  rows.x = tensor_of(context, from.x, "x", to_dtype(args.x_dtype, "x_dtype").value_or(options.dtype), from.source_rows,
                     width);
  rows.index = vector_of(context, from.index, "index", DType::i32, from.rows);
  if (from.x_scale.memory != nullptr) {
    const std::int64_t group = rows.x_group = args.x_group;
    require(group >= 0, "x_group: {} is negative", group);
    const bool e8m0 = options.activations.quantized() ? options.activations.scale == ScaleFormat::e8m0 : group > 0;
    rows.x_scale = tensor_of(context, from.x_scale, "x_scale", e8m0 ? DType::u8 : DType::f32, from.source_rows,
                             group == 0 ? 1 : quotient_up(width, group));
  }
  rows.row_ends = vector_of(context, from.row_ends, "row_ends", DType::i32, std::max<std::int64_t>(experts, 1));
  rows.expert_num_tokens = vector_of(context, args.expert_num_tokens, "expert_num_tokens", counts, experts);
  rows.weights = optional_tensor(context, from.weights, "weights", DType::f32, from.rows, 1);
  rows.slot_rows = optional_tensor(context, from.slot_rows, "slot_rows", DType::i32, from.tokens, from.slots);
  rows.out = tensor_of(context, args.out, "out", out, rows.slot_rows.present() ? from.tokens : from.rows, width);
  rows.expected_rows = args.expected_rows;
  rows.workspace = workspace_of(context, args.workspace, args.workspace_bytes);
  if (args.fault.memory != nullptr) rows.fault = fault_word(context, args.fault);
  return rows;
}

}  // namespace
}  // namespace moecl::c_api

using namespace moecl;
using namespace moecl::c_api;

moecl_status moecl_layer_experts_workspace_bytes(const moecl_layer* layer, int64_t rows, int64_t slots,
                                                 uint64_t* out_workspace_bytes) {
  return guarded([&] {
    required(out_workspace_bytes, "out_workspace_bytes") =
        required(layer, "layer").layer.expert_workspace_bytes(rows, slots);
  });
}

moecl_status moecl_layer_run_experts(const moecl_layer* layer, moecl_stream* stream, const moecl_expert_args* args,
                                     uint32_t num_wait_events, _cl_event* const* wait_events, _cl_event** out_event) {
  return guarded([&] {
    const moecl_layer& of = required(layer, "layer");
    const StreamView on = required(stream, "stream").stream;
    require(on.context->handle() == of.context->handle(),
            "experts: the stream and the layer are of different cl_contexts");
    const MoeShape& shape = of.layer.shape();
    const ExpertRows rows =
        expert_rows(*on.context, shape, of.layer.options(), shape.experts, read_struct(args, "args"));
    Event done;
    of.layer.forward_experts(
        on, rows, {wait_list(*on.context, num_wait_events, wait_events), out_event != nullptr ? &done : nullptr});
    if (out_event != nullptr) *out_event = done.release();
  });
}

moecl_status moecl_parallel_layer_experts_workspace_bytes(const moecl_parallel_layer* layer, int64_t rows,
                                                          int64_t slots, uint64_t* out_workspace_bytes) {
  return guarded([&] {
    required(out_workspace_bytes, "out_workspace_bytes") =
        required(layer, "layer").layer.expert_workspace_bytes(rows, slots);
  });
}

moecl_status moecl_parallel_layer_run_experts(moecl_parallel_layer* layer, const moecl_expert_args* args,
                                              uint32_t num_wait_events, _cl_event* const* wait_events,
                                              _cl_event** out_event) {
  return guarded([&] {
    moecl_parallel_layer& of = required(layer, "layer");
    const Context& context = *of.rank.ep.rank_stream().context;
    const ExpertRows rows =
        expert_rows(context, of.layer.shape(), of.layer.options(), of.rank.local_experts, read_struct(args, "args"));
    Event done;
    of.layer.forward_experts(
        rows, {wait_list(context, num_wait_events, wait_events), out_event != nullptr ? &done : nullptr});
    if (out_event != nullptr) *out_event = done.release();
  });
}
