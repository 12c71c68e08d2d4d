#pragma once
// The arguments of a forward pass, on one rank or several.
#include "host/c_api/c_api.hpp"

namespace moecl::c_api {

/// Errors: invalid_argument  no four numbers in a cl_mem of the context
TensorView fault_word(const Context& context, moecl_device_array array);

/// What MoeLayer and ParallelLayer take alike. Errors: invalid_argument
template <class Layer>
typename Layer::Forward forward_args(const Context& context, const Layer& layer, const moecl_forward_args& args) {
  const MoeShape& shape = layer.shape();
  const DType stored = layer.options().dtype;
  const DType out = args.out_dtype == MOECL_DEFAULT_DTYPE ? stored : dtype_of(args.out_dtype, "out_dtype");
  require(args.tokens >= 0, "tokens: {} is negative", args.tokens);
  typename Layer::Forward forward;
  forward.x = tensor_of(context, args.x, "x", stored, args.tokens, shape.hidden);
  forward.out = tensor_of(context, args.out, "out", out, args.tokens, shape.hidden);
  forward.router_logits =
      optional_tensor(context, args.router_logits, "router_logits", DType::f32, args.tokens, shape.experts);
  forward.topk_ids = optional_tensor(context, args.topk_ids, "topk_ids", DType::i32, args.tokens, shape.router.top_k);
  forward.topk_weights =
      optional_tensor(context, args.topk_weights, "topk_weights", DType::f32, args.tokens, shape.router.top_k);
  forward.ids = optional_tensor(context, args.ids, "ids", DType::i32, args.tokens, shape.router.top_k);
  forward.weights = optional_tensor(context, args.weights, "weights", DType::f32, args.tokens, shape.router.top_k);
  forward.routed_out = optional_tensor(context, args.routed_out, "routed_out", out, args.tokens, shape.hidden);
  if (args.finished.memory != nullptr)
    forward.finished = {
        tensor_of(context, args.finished, "finished", DType::u8, args.tokens, 1).buffer, DType::u8, {args.tokens}};
  if (args.fault.memory != nullptr) forward.fault = fault_word(context, args.fault);
  return forward;
}

}  // namespace moecl::c_api
