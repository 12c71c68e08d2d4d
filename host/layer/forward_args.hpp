#pragma once
// What the forward passes of MoeLayer and ParallelLayer do alike with their arguments.
#include <moecl/moe_forward.hpp>
#include <moecl/moe_weights.hpp>
#include <moecl/tensor_view.hpp>

#include <array>

#include "runtime/check.hpp"
#include "runtime/operands.hpp"

namespace moecl {

/// [B, S, H] as [B * S, H]; anything else as it is.
inline TensorView by_token(const TensorView& view) {
  if (view.rank != 3 || !view.contiguous()) return view;
  return TensorView(view.buffer, view.dtype, {view.shape[0] * view.shape[1], view.shape[2]});
}

/// Tokens [first, first + count) of them. Counts of experts, workspace and fault word stay
inline MoeForward part_of(const MoeForward& args, std::int64_t first, std::int64_t count) {
  MoeForward part = args;
  for (TensorView* view :
       {&part.x, &part.expert_input, &part.given_logits, &part.ids, &part.weights, &part.finished, &part.out,
        &part.routed_out, &part.shared_out, &part.router_logits, &part.topk_ids, &part.topk_weights})
    if (view->present()) *view = view->rows(first, count);
  return part;
}

/// Whether `out` is x.
inline bool is_in_place(const MoeForward& args) {
  return args.x.buffer.handle == args.out.buffer.handle && args.x.buffer.offset_bytes == args.out.buffer.offset_bytes &&
         args.x.dtype == args.out.dtype && args.x.stride == args.out.stride;
}

/// As expect_tensor, and that its memory holds it.
inline void expect_operand(const TensorView& view, const char* what, DType dtype,
                           std::initializer_list<std::int64_t> dims) {
  expect_tensor(view, what, dtype, dims);
  expect_memory(view, what);
}

/// i32 or i64.
inline void expect_ints(const TensorView& view, const char* what, std::initializer_list<std::int64_t> dims) {
  require(view.dtype == DType::i32 || view.dtype == DType::i64, "{}: expected i32 or i64, got {}", what, view);
  expect_operand(view, what, view.dtype, dims);
  require(view.contiguous(), "{}: expected contiguous {}, got rows {} elements apart", what, view, view.stride[0]);
}

/// f32, f16 or bf16 by token, of the shape of x.
inline void expect_like_x(TensorView& view, const char* what, const TensorView& x, const MoeShape& shape) {
  if (!view.present()) return;
  require(is_activation_dtype(view.dtype), "{}: expected f32, f16 or bf16, got {}", what, view);
  require(view.rank == x.rank && view.shape == x.shape, "{}: expected the shape of x, {}, got {}", what, x, view);
  view = by_token(view);
  expect_operand(view, what, view.dtype, {by_token(x).shape[0], shape.hidden});
}

/// Of inputs by token.
inline void expect_routing(const MoeForward& args, std::int64_t tokens, const MoeShape& shape) {
  const std::int32_t top_k = shape.router.top_k;
  if (args.finished.present()) {
    require(args.finished.dtype == DType::u8 || args.finished.dtype == DType::boolean,
            "finished: expected u8 or boolean, got {}", args.finished);
    expect_operand(args.finished, "finished", args.finished.dtype, {tokens});
  }
  if (args.given_logits.present()) {
    require(is_activation_dtype(args.given_logits.dtype), "given_logits: expected f32, f16 or bf16, got {}",
            args.given_logits);
    expect_operand(args.given_logits, "given_logits", args.given_logits.dtype, {tokens, shape.experts});
    require(!args.router_logits.present(), "router_logits: there are none of the layer's router beside given_logits");
  }
  require(args.ids.present() == args.weights.present(), "ids and weights: give both or neither");
  if (!args.ids.present()) return;
  require(!args.given_logits.present(), "given_logits and ids: give one of them, since either says what is chosen");
  require(!args.topk_ids.present() && !args.topk_weights.present(),
          "topk_ids and topk_weights are the router's outputs: they cannot be asked for with the caller's own ids");
  require(!args.finished.present(), "finished: the caller's own ids say so themselves, by -1");
  expect_ints(args.ids, "ids", {tokens, top_k});
  expect_operand(args.weights, "weights", DType::f32, {tokens, top_k});
}

/// The arguments with everything of the shape of x by token.
/// @param local_experts  those of this rank
/// Errors: invalid_argument  a tensor that does not fit the layer, or that its memory does not hold
inline MoeForward checked_forward(const MoeForward& args, const MoeShape& shape, DType dtype,
                                  std::int64_t local_experts) {
  MoeForward checked = args;
  checked.x = by_token(args.x);
  require(checked.x.rank == 2, "x: expected [T, {}] or contiguous [B, S, {}], got {}", shape.hidden, shape.hidden,
          args.x);
  const std::int64_t tokens = checked.x.shape[0];
  const std::int32_t top_k = shape.router.top_k;
  expect_operand(checked.x, "x", dtype, {tokens, shape.hidden});
  expect_like_x(checked.expert_input, "expert_input", args.x, shape);
  require(!args.expert_input.present() || args.expert_input.dtype == dtype, "expert_input: expected {}, got {}",
          name(dtype), args.expert_input);
  require(args.out.present() || args.routed_out.present() || args.shared_out.present(),
          "out: absent, and neither routed_out nor shared_out is asked for");
  expect_like_x(checked.out, "out", args.x, shape);
  expect_like_x(checked.routed_out, "routed_out", args.x, shape);
  expect_like_x(checked.shared_out, "shared_out", args.x, shape);
  require(!args.shared_out.present() || shape.shared_intermediate > 0, "shared_out: the layer has no shared experts");
  if (args.router_logits.present())
    expect_operand(args.router_logits, "router_logits", DType::f32, {tokens, shape.experts});
  if (args.topk_ids.present()) expect_ints(args.topk_ids, "topk_ids", {tokens, top_k});
  if (args.topk_weights.present()) expect_operand(args.topk_weights, "topk_weights", DType::f32, {tokens, top_k});
  if (args.expert_num_tokens.present()) expect_ints(args.expert_num_tokens, "expert_num_tokens", {local_experts});
  if (args.fault.present()) expect_operand(args.fault, "fault", DType::i32, {4});
  expect_routing(args, tokens, shape);
  return checked;
}

/// Of checked arguments.
/// @param workspace  as much of it as the pass uses
/// Errors: invalid_argument  what the pass writes overlaps something else that it uses
inline void expect_operands_apart(const MoeForward& args, BufferView workspace = {}) {
  using enum Access;
  expect_apart(
      std::array{Operand("x", read, args.x), Operand("expert_input", read, args.expert_input),
                 Operand("given_logits", read, args.given_logits), Operand("ids", read, args.ids),
                 Operand("weights", read, args.weights), Operand("finished", read, args.finished),
                 Operand("out", written, args.out), Operand("routed_out", written, args.routed_out),
                 Operand("shared_out", written, args.shared_out), Operand("router_logits", written, args.router_logits),
                 Operand("topk_ids", written, args.topk_ids), Operand("topk_weights", written, args.topk_weights),
                 Operand("expert_num_tokens", written, args.expert_num_tokens), Operand("fault", written, args.fault),
                 Operand("workspace", written, workspace)});
}

}  // namespace moecl
