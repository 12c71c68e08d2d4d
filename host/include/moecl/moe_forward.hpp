#pragma once
#include <moecl/tensor_view.hpp>

namespace moecl {

/// What a pass of a layer takes, of this rank's T tokens. H hidden size, E experts, K experts a token.
///
/// The routing is one of: nothing, and the layer's router chooses; given_logits; ids with weights.
struct MoeInputs {
  TensorView x;  ///< Shape: [T, H] or [B, S, H] with T = B * S, of the layer's dtype
  /// optional: what the routed experts take; the router and the shared experts take x. Shape, dtype: as x
  TensorView expert_input;
  TensorView given_logits;  ///< optional: of a router of the caller's. Shape: [T, E] f32, f16 or bf16
  /// optional: the caller's own choice, both or neither. Shapes: [T, K] i32 or i64, -1 for no expert, and [T, K] f32.
  /// Ids outside [-1, E) set the fault word.
  TensorView ids, weights;
  /// optional, where ids are not given. Shape: [T] u8 or boolean: tokens with another value than 0 take no expert
  TensorView finished;
};

/// What it gives: at least one of `out`, `routed_out` and `shared_out`; the others may be absent.
struct MoeOutputs {
  TensorView out;            ///< Shape: as x, f32, f16 or bf16: the routed and the shared part together
  TensorView routed_out;     ///< Shape, dtypes: as out. The routed part; 0 for finished tokens
  TensorView shared_out;     ///< Shape, dtypes: as out. The shared experts' part, of a layer that has any
  TensorView router_logits;  ///< Shape: [T, E] f32; not with given_logits
  TensorView topk_ids;       ///< Shape: [T, K] i32 or i64; -1 for finished tokens; not with ids
  TensorView topk_weights;   ///< Shape: [T, K] f32; not with ids
  /// Rows that each expert here was given, by any rank. Shape: [experts of this rank] i32 or i64
  TensorView expert_num_tokens;
};

/// The operands of a pass of MoeLayer or ParallelLayer.
struct MoeForward : MoeInputs, MoeOutputs {
  /// At least workspace_bytes; of this pass alone until its last command completes. Over ranks optional.
  BufferView workspace;
  TensorView fault;  ///< optional in/out. Shape: [4] i32, see fault.hpp; zero it before, check_fault after
};

}  // namespace moecl
