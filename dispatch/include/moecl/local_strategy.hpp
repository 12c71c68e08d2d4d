#pragma once
#include <moecl/combine.hpp>
#include <moecl/device.hpp>
#include <moecl/expert_sort.hpp>
#include <moecl/routed_rows.hpp>
#include <moecl/stream.hpp>
#include <moecl/workspace.hpp>

#include <cstdint>

/// The strategy of one rank: every expert is here, so tokens are only sorted, and nothing is exchanged.
///
/// Both halves, as every strategy has them: dispatch brings tokens to experts, combine brings the weighted sum back.
namespace moecl::local_strategy {

struct Problem {
  std::int64_t tokens = 0, hidden = 0;
  std::int32_t experts = 0, top_k = 0;
  std::int64_t rows_per_expert = 0;  ///< 0: standard layout; else batched
  DType dtype = DType::f32;          ///< of the hidden states

  std::int64_t slots() const { return tokens * top_k; }
  /// Rows of the expert-ordered matrices.
  std::int64_t rows() const { return rows_per_expert == 0 ? slots() : rows_per_expert * experts; }
};

/// Scratch of one call: places in a workspace.
struct Layout {
  Layout(WorkspaceLayout& workspace, const Problem& problem, const DeviceCaps& caps);
  TensorView row_ends, sorted_slots, slot_rows, sort_scratch;
  TensorView batched_rows;  ///< absent in the standard layout
};

/// The sort of the slots by expert, which comes first and is the caller's to enqueue, alone or with the choice of
/// experts (route_tokens).
///
/// @param ids    Shape: [T, K] i32. @param fault  Shape: [4] i32, see expert_sort
expert_sort::Args sort_args(const Problem& problem, const Layout& layout, BufferView workspace, TensorView ids,
                            TensorView fault);

struct Dispatched {
  RoutedRows rows;
  TensorView slot_rows;  ///< Shape: [T * K] i32
};

/// The rows for the experts after that sort; in the batched layout copies each expert's rows to their place.
///
/// Async: no kernel, one in the batched layout; no host read
Dispatched dispatch(StreamView stream, const Problem& problem, const Layout& layout, BufferView workspace, TensorView x,
                    const expert_sort::Args& sort);

/// What the experts' rows are combined with.
struct Finalize {
  TensorView weights;      ///< Shape: [T, K] f32; absent: 1, when the weight already multiplied the input
  TensorView shared;       ///< optional. Shape: [T, H]
  TensorView shared_gate;  ///< optional. Shape: [T, 1] f32 logits
};

/// out[t] = weighted sum of the token's expert rows, plus the shared part.
combine::Args combine_args(const Dispatched& dispatched, TensorView expert_rows, const Finalize& finalize,
                           TensorView out);
/// Async: one kernel.
void combine(StreamView stream, const Dispatched& dispatched, TensorView expert_rows, const Finalize& finalize,
             TensorView out, Submit submit = {});

}  // namespace moecl::local_strategy
