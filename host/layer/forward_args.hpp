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

/// Tokens [first, first + count) of them. Workspace and fault word stay
inline MoeForward part_of(const MoeForward& args, std::int64_t first, std::int64_t count) {
  using Forward = MoeForward;
  Forward part = args;
  for (TensorView Forward::*view :
       {&Forward::x, &Forward::out, &Forward::ids, &Forward::weights, &Forward::finished, &Forward::router_logits,
        &Forward::topk_ids, &Forward::topk_weights, &Forward::routed_out})
    if ((args.*view).present()) part.*view = (args.*view).rows(first, count);
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

/// [T, K]: operators take expert ids without gaps alone.
inline void expect_ids(const TensorView& view, const char* what, std::int64_t tokens, std::int32_t top_k) {
  expect_operand(view, what, DType::i32, {tokens, top_k});
  require(view.contiguous(), "{}: expected contiguous {}, got rows {} elements apart", what, view, view.stride[0]);
}

/// The arguments with x, out and routed_out by token.
/// Errors: invalid_argument  a tensor that does not fit the layer, or that its memory does not hold
inline MoeForward checked_forward(const MoeForward& args, const MoeShape& shape, DType dtype) {
  MoeForward checked = args;
  checked.x = by_token(args.x);
  require(checked.x.rank == 2, "x: expected [T, {}] or contiguous [B, S, {}], got {}", shape.hidden, shape.hidden,
          args.x);
  const std::int64_t tokens = checked.x.shape[0];
  expect_operand(checked.x, "x", dtype, {tokens, shape.hidden});
  const auto expect_output = [&](TensorView& view, const char* what) {
    require(is_activation_dtype(view.dtype), "{}: expected f32, f16 or bf16, got {}", what, view);
    require(view.rank == args.x.rank && view.shape == args.x.shape, "{}: expected the shape of x, {}, got {}", what,
            args.x, view);
    view = by_token(view);
    expect_operand(view, what, view.dtype, {tokens, shape.hidden});
  };
  expect_output(checked.out, "out");
  if (args.routed_out.present()) expect_output(checked.routed_out, "routed_out");
  if (args.router_logits.present())
    expect_operand(args.router_logits, "router_logits", DType::f32, {tokens, shape.experts});
  if (args.topk_ids.present()) expect_ids(args.topk_ids, "topk_ids", tokens, shape.router.top_k);
  if (args.topk_weights.present())
    expect_operand(args.topk_weights, "topk_weights", DType::f32, {tokens, shape.router.top_k});
  if (args.finished.present()) {
    require(args.finished.dtype == DType::u8 || args.finished.dtype == DType::boolean,
            "finished: expected u8 or boolean, got {}", args.finished);
    expect_operand(args.finished, "finished", args.finished.dtype, {tokens});
  }
  if (args.fault.present()) expect_operand(args.fault, "fault", DType::i32, {4});
  require(args.ids.present() == args.weights.present(), "ids and weights: give both or neither");
  if (!args.ids.present()) return checked;
  require(!args.topk_ids.present() && !args.topk_weights.present(),
          "topk_ids and topk_weights are the router's outputs: they cannot be asked for with the caller's own ids");
  require(!args.finished.present(), "finished: the caller's own ids say so themselves, by -1");
  expect_ids(args.ids, "ids", tokens, shape.router.top_k);
  expect_operand(args.weights, "weights", DType::f32, {tokens, shape.router.top_k});
  return checked;
}

/// Of checked arguments.
/// @param workspace  as much of it as the pass uses
/// Errors: invalid_argument  what the pass writes overlaps something else that it uses
inline void expect_operands_apart(const MoeForward& args, BufferView workspace = {}) {
  using enum Access;
  expect_apart(
      std::array{Operand("x", read, args.x), Operand("ids", read, args.ids), Operand("weights", read, args.weights),
                 Operand("finished", read, args.finished), Operand("out", written, args.out),
                 Operand("router_logits", written, args.router_logits), Operand("topk_ids", written, args.topk_ids),
                 Operand("topk_weights", written, args.topk_weights), Operand("routed_out", written, args.routed_out),
                 Operand("fault", written, args.fault), Operand("workspace", written, workspace)});
}

}  // namespace moecl
