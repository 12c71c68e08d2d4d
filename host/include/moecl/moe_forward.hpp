#pragma once
#include <moecl/tensor_view.hpp>

namespace moecl {

/// The operands of a pass of MoeLayer. T tokens, H hidden size, E experts, K experts a token.
struct MoeForward {
  TensorView x;    ///< Shape: [T, H] or [B, S, H] with T = B * S, of the layer's dtype
  TensorView out;  ///< Shape: as x, f32, f16 or bf16
  /// Caller's own routing instead of the router's: both or neither. Ids outside [-1, E) set the fault word.
  TensorView ids, weights;  ///< optional. Shapes: [T, K] i32 and [T, K] f32
  /// optional, of the router's choice. Shape: [T] u8 or boolean: tokens with another value than 0 take no expert
  TensorView finished;
  /// Optional outputs.
  TensorView router_logits;  ///< Shape: [T, E] f32
  TensorView topk_ids;       ///< Shape: [T, K] i32; -1 for finished tokens
  TensorView topk_weights;   ///< Shape: [T, K] f32
  TensorView routed_out;     ///< Shape: as x, `out` without the shared experts; 0 for finished tokens
  BufferView workspace;      ///< at least workspace_bytes(T); of this stream alone until the command completes
  TensorView fault;          ///< optional in/out. Shape: [4] i32, see fault.hpp; zero it before, check_fault after
};

}  // namespace moecl
