#pragma once
#include <moecl/tensor_view.hpp>

namespace moecl {

/// What a pass of a layer takes, of this rank's T tokens. H hidden size, L that of the routed experts (H unless the
/// shape says another), C experts to choose among (those without products too), K experts a token.
///
/// Routing, one of:
/// - neither logits nor ids: the layer's router gives logits, and the layer's rule chooses
/// - given_logits: the layer's rule chooses by them
/// - ids and weights: the caller's choice, without token_ids and finished
/// A layer with a table of experts also takes token_ids, unless ids are given: the table chooses, logits weigh.
struct MoeInputs {
  /// Shape: [T, H] or [B, S, H] with T = B * S, of the layer's dtype. Absent where only expert_input is needed: the
  /// routing is given, and shared experts are not asked for
  TensorView x;
  /// optional unless L differs from H: what the routed experts take; the router and the shared experts take x.
  /// Shape: as x, of L columns. Dtype: as x; or codes as the layer's activations have them, i8 or f8_e4m3 [T, L]
  TensorView expert_input;
  /// of codes, which are not quantized again. Shape: [T] f32, a scale a token; or [T, ceil(L / group)] f32 or u8 (e8m0)
  TensorView expert_input_scale;
  TensorView given_logits;  ///< optional: of a router of the caller's. Shape: [T, C] f32, f16 or bf16
  /// of layers with a table, where ids are not given. Shape: [T] i32 or i64. Ids outside [0, V) set the fault word and
  /// have no experts
  TensorView token_ids;
  /// optional: the caller's own choice, both or neither. Shapes: [T, K] i32 or i64, -1 for no expert, and [T, K] f32.
  /// Ids outside [-1, C) set the fault word.
  TensorView ids, weights;
  /// optional, where ids are not given. Shape: [T] u8 or boolean: tokens with another value than 0 take no expert
  TensorView finished;
};

/// What it gives: at least one of `out`, `routed_out`, `shared_out` and `expert_rows`; the others may be absent.
struct MoeOutputs {
  /// Shape: as x, of L columns, f32, f16 or bf16: the routed and the shared part together, where both have L columns
  TensorView out;
  TensorView routed_out;     ///< Shape, dtypes: as out. The routed part; 0 for finished tokens
  TensorView shared_out;     ///< Shape: as x; dtypes: as out. The shared experts' part, of a layer that has any
  TensorView router_logits;  ///< Shape: [T, C] f32; not with given_logits
  TensorView topk_ids;       ///< Shape: [T, K] i32 or i64; -1 for finished tokens; not with ids
  TensorView topk_weights;   ///< Shape: [T, K] f32; not with ids
  /// For a caller who sums himself: row t * K + k is what expert k of token t gave, without its weight; 0 where that is
  /// -1 or an expert without products. Shape: [T * K, L] f32, f16 or bf16. Over ranks only where rows come home:
  /// combine_form, without tp groups
  TensorView expert_rows;
  /// Rows that each expert here was given, by any rank. Shape: [experts of this rank] i32 or i64
  TensorView expert_num_tokens;
  /// in/out: the same, added to what it holds: a record of loads over passes, which LoadRecord keeps by phase.
  /// Shape: [experts of this rank] i64
  TensorView expert_load;
};

/// The operands of a pass of MoeLayer or ParallelLayer.
struct MoeForward : MoeInputs, MoeOutputs {
  /// At least workspace_bytes, from a multiple of WorkspaceLayout::base_alignment_bytes on; of this pass alone until
  /// its last command completes. Over ranks optional.
  BufferView workspace;
  TensorView fault;  ///< optional in/out. Shape: [4] i32, see fault.hpp; zero it before, check_fault after
};

}  // namespace moecl
