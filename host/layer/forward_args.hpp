#pragma once
// What the forward passes of MoeLayer and ParallelLayer do alike with their arguments.
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

inline TensorView rows_or_absent(const TensorView& view, std::int64_t first, std::int64_t count) {
  return view.present() ? view.rows(first, count) : view;
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
template <class Forward>
Forward checked_forward(const Forward& args, const MoeShape& shape, DType dtype) {
  Forward checked = args;
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
  return checked;
}

/// Of checked arguments.
/// @param workspace  as much of it as the pass uses
/// Errors: invalid_argument  what the pass writes overlaps something else that it uses
template <class Forward>
void expect_operands_apart(const Forward& args, BufferView workspace = {}) {
  using enum Access;
  TensorView ids, weights;
  if constexpr (requires { args.ids; }) {
    ids = args.ids;
    weights = args.weights;
  }
  expect_apart(
      std::array{Operand("x", read, args.x), Operand("ids", read, ids), Operand("weights", read, weights),
                 Operand("finished", read, args.finished), Operand("out", written, args.out),
                 Operand("router_logits", written, args.router_logits), Operand("topk_ids", written, args.topk_ids),
                 Operand("topk_weights", written, args.topk_weights), Operand("routed_out", written, args.routed_out),
                 Operand("fault", written, args.fault), Operand("workspace", written, workspace)});
}

}  // namespace moecl
