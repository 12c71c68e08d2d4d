#pragma once
#include <moecl/tensor_view.hpp>

namespace moecl {

/// The inputs of a pass of a layer, for this rank's T tokens. H: hidden size. L: width of the routed experts (H unless
/// the shape gives another). C: experts to choose among (those without products too). K: experts per token.
///
/// Routing, one of:
/// - neither logits nor ids: the layer's router computes logits, and the layer's rule chooses by them
/// - given_logits: the layer's rule chooses by these
/// - ids and weights: the caller's choice; token_ids and finished must be absent
/// A layer with a table of experts also takes token_ids, unless ids are given: the table chooses, logits give weights.
struct MoeInputs {
  /// Shape: [T, H] or [B, S, H] with T = B * S, of the layer's dtype. May be absent if only expert_input is needed:
  /// the routing is given, and shared experts are not asked for
  TensorView x;
  /// optional unless L differs from H: the input of the routed experts; the router and the shared experts take x.
  /// Shape: as x, but L columns. Dtype: as x; or codes in the format of the layer's activations, i8 or f8_e4m3 [T, L]
  TensorView expert_input;
  /// only for codes in expert_input, which are not quantized again. Shape: [T] f32, one scale per token; or
  /// [T, ceil(L / group)] f32 or u8 (e8m0)
  TensorView expert_input_scale;
  TensorView given_logits;  ///< optional: logits of the caller's own router. Shape: [T, C] f32, f16 or bf16
  /// only for layers with a table, and only without ids. Shape: [T] i32 or i64. Token ids outside [0, V) set the fault
  /// word and get no experts
  TensorView token_ids;
  /// optional: the caller's own choice, both or neither. Shapes: [T, K] i32 or i64, -1 for no expert, and [T, K] f32.
  /// Ids outside [-1, C) set the fault word.
  TensorView ids, weights;
  /// optional, only without ids. Shape: [T] u8 or boolean: tokens with a nonzero value take no expert
  TensorView finished;
};

/// The outputs of a pass: at least one of `out`, `routed_out`, `shared_out`, `expert_rows`; others may be absent.
struct MoeOutputs {
  /// Shape: as x, but L columns, f32, f16 or bf16: the sum of the routed and the shared part, if both have L columns
  TensorView out;
  TensorView routed_out;     ///< Shape, dtypes: as out. The routed part; 0 for finished tokens
  TensorView shared_out;     ///< Shape: as x; dtypes: as out. The shared experts' part, of a layer that has any
  TensorView router_logits;  ///< Shape: [T, C] f32; not with given_logits
  TensorView topk_ids;       ///< Shape: [T, K] i32 or i64; -1 for finished tokens; not with ids
  TensorView topk_weights;   ///< Shape: [T, K] f32; not with ids
  /// For a caller that sums by itself: row t * K + k is the output of the k-th expert of token t, not multiplied by its
  /// weight. The row is 0 if that id is -1 or an expert without products. Shape: [T * K, L] f32, f16 or bf16. Over
  /// ranks only if combine_form is CombineForm::rows, and without tp groups
  TensorView expert_rows;
  /// Rows that each expert here received, from any rank. Shape: [experts of this rank] i32 or i64
  TensorView expert_num_tokens;
  /// in/out: the same counts, added to its contents: a record of loads over passes, which LoadRecord keeps by phase.
  /// Shape: [experts of this rank] i64
  TensorView expert_load;
};

/// The operands of a pass of MoeLayer or ParallelLayer.
struct MoeForward : MoeInputs, MoeOutputs {
  /// At least workspace_bytes, at a multiple of WorkspaceLayout::base_alignment_bytes. Reserved for this pass until its
  /// last command completes. Over ranks optional.
  BufferView workspace;
  TensorView fault;  ///< optional in/out. Shape: [4] i32, see fault.hpp; zero it before, check_fault after
};

}  // namespace moecl
