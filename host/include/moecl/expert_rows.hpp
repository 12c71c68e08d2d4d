#pragma once
#include <moecl/buffer.hpp>
#include <moecl/routed_rows.hpp>

#include <cstdint>

namespace moecl {

/// The operands of `forward_experts`: rows that the caller's own exchange brought for the experts of a layer, and where
/// the results go. E: experts of this device, or of this rank's places. L: columns of a row, the width of the experts.
///
/// Rows come in one of two forms. RoutedRows is the form that strategies give. A runtime with an exchange of its own
/// gives x [R, L], one expert after the other, or x [E, M, L], with room for M rows per expert; with the latter `rows`
/// and `rows_per_expert` may stay 0. With such an x, row weights and scales are [R] or [E, M]; x_group gives scales one
/// more dimension.
///
/// The operands select the output, see ExpertOutput. `weights`: rows are multiplied by them. `slot_rows`: the output is
/// one sum per token, weighted if there are weights. Neither: rows as the products gave them.
/// Source: BatchedExperts and TopKWeightAndReduce of vLLM
struct ExpertRows : RoutedRows {
  /// Rows of each expert, instead of row_ends. Shape: [E] i32 or i64. A negative count, a count larger than the room of
  /// an expert, or counts of more than R rows in all set the fault word and are clamped.
  TensorView expert_num_tokens;
  /// The likely number of rows of all experts here. Kernels are chosen for this number; 0: R.
  /// Source: expected_m of DeepGEMM's masked products
  std::int64_t expected_rows = 0;
  /// Shape: [R, L], or as x; of sums [M, L], for the M tokens of slot_rows. Dtypes: f32, f16, bf16. Contiguous. The
  /// pass leaves the room past an expert's last row undefined
  TensorView out;
  /// At least expert_workspace_bytes, at a multiple of WorkspaceLayout::base_alignment_bytes. Reserved for this pass
  /// until its last command completes
  BufferView workspace;
  TensorView fault;  ///< optional in/out. Shape: [4] i32, see fault.hpp
};

}  // namespace moecl
