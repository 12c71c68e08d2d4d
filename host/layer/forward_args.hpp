#pragma once
// What the forward passes of MoeLayer and ParallelLayer check alike.
#include <moecl/moe_weights.hpp>
#include <moecl/tensor_view.hpp>

#include "runtime/check.hpp"

namespace moecl {

/// [B, S, H] as [B * S, H]; anything else as it is.
inline TensorView by_token(const TensorView& view) {
  if (view.rank != 3 || !view.contiguous()) return view;
  return TensorView(view.buffer, view.dtype, {view.shape[0] * view.shape[1], view.shape[2]});
}

/// The arguments with x, out and routed_out by token.
/// Errors: invalid_argument  a tensor that does not fit the layer
template <class Forward>
Forward checked_forward(const Forward& args, const MoeShape& shape, DType dtype) {
  Forward checked = args;
  checked.x = by_token(args.x);
  require(checked.x.rank == 2, "x: expected [T, {}] or contiguous [B, S, {}], got {}", shape.hidden, shape.hidden,
          args.x.describe());
  const std::int64_t tokens = checked.x.shape[0];
  expect_tensor(checked.x, "x", dtype, {tokens, shape.hidden});
  const auto expect_output = [&](TensorView& view, const char* what) {
    require(is_activation_dtype(view.dtype), "{}: expected f32, f16 or bf16, got {}", what, view.describe());
    require(view.rank == args.x.rank && view.shape == args.x.shape, "{}: expected the shape of x, {}, got {}", what,
            args.x.describe(), view.describe());
    view = by_token(view);
    expect_tensor(view, what, view.dtype, {tokens, shape.hidden});
  };
  expect_output(checked.out, "out");
  if (args.routed_out.present()) expect_output(checked.routed_out, "routed_out");
  const auto expect_optional = [&](const TensorView& view, const char* what, DType type, std::int64_t columns) {
    if (view.present()) expect_tensor(view, what, type, {tokens, columns});
  };
  expect_optional(args.router_logits, "router_logits", DType::f32, shape.experts);
  expect_optional(args.topk_ids, "topk_ids", DType::i32, shape.router.top_k);
  expect_optional(args.topk_weights, "topk_weights", DType::f32, shape.router.top_k);
  if (args.finished.present()) {
    require(args.finished.dtype == DType::u8 || args.finished.dtype == DType::boolean,
            "finished: expected u8 or boolean, got {}", args.finished.describe());
    expect_tensor(args.finished, "finished", args.finished.dtype, {tokens});
  }
  if (args.fault.present()) expect_tensor(args.fault, "fault", DType::i32, {4});
  return checked;
}

}  // namespace moecl
