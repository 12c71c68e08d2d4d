#pragma once
#include <moecl/buffer.hpp>
#include <moecl/routed_rows.hpp>

#include <cstdint>

namespace moecl {

/// The experts of a layer in an exchange of the caller's: the rows that it brought for them, and where their results
/// go. E experts of this device, or of this rank's places; rows of L columns, as wide as the layer's experts.
///
/// Rows come as strategies give them (RoutedRows), or as a runtime has them that exchanges by itself: one expert after
/// the other in x [R, L], or with room of equal size in x [E, M, L], where `rows` and `rows_per_expert` may stay 0. The
/// row weights are then [R] or [E, M], scales [R], [E, M] or with x_group one column more.
///
/// What experts give back follows from what they get, as ExpertOutput says: rows; with `weights` weighted rows; with
/// `slot_rows` the sum of each token's, weighted if there are weights. Source: BatchedExperts and TopKWeightAndReduce
/// of vLLM
struct ExpertRows : RoutedRows {
  /// Instead of row_ends. Shape: [E] i32 or i64. A negative count, one past the room, or counts of more than R rows set
  /// the fault word, and are cut.
  TensorView expert_num_tokens;
  /// How many rows the experts here are likely to get together, which kernels are chosen by; 0: R.
  /// Source: expected_m of DeepGEMM's masked products
  std::int64_t expected_rows = 0;
  /// Shape: [R, L], or as x; of sums [M, L], of the tokens of slot_rows. Dtypes: f32, f16, bf16. Contiguous. What
  /// stands past an expert's rows is undefined then
  TensorView out;
  /// At least expert_workspace_bytes, from a multiple of WorkspaceLayout::base_alignment_bytes on; of this pass alone
  /// until its last command completes
  BufferView workspace;
  TensorView fault;  ///< optional in/out. Shape: [4] i32, see fault.hpp
};

}  // namespace moecl
