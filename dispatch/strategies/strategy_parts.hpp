#pragma once
// Parts that the strategies share.
#include <moecl/device.hpp>
#include <moecl/strategy.hpp>
#include <moecl/workspace.hpp>

#include "dispatch/exchange.hpp"
#include "dispatch/step_memory.hpp"
#include "dispatch/strategies/wire.hpp"
#include "runtime/check.hpp"

namespace moecl {

/// The values that must be equal on all ranks of such a strategy.
std::vector<Agreed> agreed_about(StrategyKind kind, const ExpertRank& rank, const ExpertProblem& problem);
/// Exchanges the token counts of all ep ranks. All must agree about `agreed`, and a tp group about its count. One
/// meeting.
/// Errors: invalid_argument  on every rank
std::vector<std::int64_t> share_tokens(const char* what, const ExpertRank& rank, std::int64_t tokens,
                                       std::vector<Agreed> agreed);
/// Token counts of all ep ranks, each the count of its tp group. All must agree about the problem and the format of
/// tokens, and a tp group about its count. No meeting if that was agreed before. Errors: invalid_argument  on every
/// rank
/// @param asked  out: holds the returned counts if they were not known
const std::vector<std::int64_t>& agree_on_tokens(StrategyKind kind, const ExpertRank& rank,
                                                 const ExpertProblem& problem, const TokensIn& tokens,
                                                 std::vector<std::int64_t>& asked);
/// counts = the tokens of each dp rank. @param of_ranks  tokens of each rank of `ep`
void count_by_dp_rank(const ExpertRank& rank, const std::vector<std::int64_t>& of_ranks,
                      std::vector<std::int64_t>& counts);

/// Rows of the weights, if there are weights.
inline TensorView weights_of(const TokensIn& tokens, Share rows) {
  return tokens.weights.present() ? tokens.weights.rows(rows.begin, rows.count) : TensorView();
}
/// Rows of the hidden states, or of their codes and scales.
inline WireRows rows_of(const TokensIn& tokens, Share rows) {
  return {tokens.x.rows(rows.begin, rows.count),
          tokens.x_scale.present() ? tokens.x_scale.rows(rows.begin, rows.count) : TensorView(), tokens.x_group};
}

inline std::uint64_t bytes_of(DType dtype, std::int64_t rows, std::int64_t columns = 1) {
  return static_cast<std::uint64_t>(rows * columns) * size_bytes(dtype);
}
/// Bytes of `rows` rows of a matrix, or elements of a vector.
inline std::uint64_t bytes_of(const TensorView& view, std::int64_t rows) {
  return bytes_of(view.dtype, rows, view.rank == 1 ? 1 : view.shape[1]);
}

inline BufferView whole(const TensorView& view) { return view.buffer.slice(0, view.size_bytes()); }

/// A piece of an exchange: rows of `from` that arrive as rows of `to`.
Communicator::Exchange::Piece piece_of(const TensorView& from, const TensorView& to);

/// Memory for what a strategy shows to its peers last in a step. It must stay unchanged beyond the end of the step,
/// until the first exchange of the next one. So it is not part of the memory that steps use in turn. Grows with the
/// steps seen.
class Outbox {
 public:
  BufferView take(const ExpertRank& rank, const WorkspaceLayout& layout) {
    return memory_.reserve(*rank.ep.rank_stream().context, layout.total_bytes());
  }
  std::uint64_t bytes() const noexcept { return memory_.capacity_bytes(); }

 private:
  Workspace memory_;
};

/// Layout of a sort of slots by expert, in a workspace: row ends, the order and its inverse.
struct SortLayout {
  /// @param rows_per_expert_  0: standard layout; else batched
  SortLayout(WorkspaceLayout& workspace, std::int64_t slots, std::int32_t experts, const DeviceCaps& caps,
             std::int64_t rows_per_expert = 0);
  /// Arguments of the sort by experts [first, first + experts) of `total`. @param ids  Shape: [T, K] i32
  expert_sort::Args in(BufferView memory, TensorView ids, std::int32_t first, std::int32_t total,
                       TensorView fault) const;
  /// The most rows there can be.
  std::int64_t rows() const noexcept { return rows_per_expert == 0 ? slots : rows_per_expert * experts; }

  std::int64_t slots;
  std::int32_t experts;
  std::int64_t rows_per_expert;

 private:
  TensorView row_ends_, sorted_slots_, slot_rows_;
  std::uint64_t scratch_, scratch_bytes_;
};

/// Memory for rows copied for the experts, if the layout of that sort is batched.
struct BatchedLayout {
  BatchedLayout(WorkspaceLayout& workspace, const WireRow& row, const SortLayout& sort, std::int64_t hidden) {
    if (sort.rows_per_expert != 0) rows.emplace(workspace, row, sort.rows(), hidden);
  }
  std::optional<WireRows::Layout> rows;
};
/// The rows for the experts after that sort: `rows` in place, or copied. Async: no kernel, or one for the rows and one
/// for scales
RoutedRows rows_in_order(StreamView stream, const WireRows& rows, const expert_sort::Args& sort, std::int32_t divisor,
                         const BatchedLayout& batched, BufferView memory);
/// For experts that sum: which rows, in the order of that sort, belong to each token. Otherwise nothing.
inline TensorView rows_of_tokens(const ExpertProblem& problem, const expert_sort::Args& sort) {
  if (!problem.experts_sum()) return {};
  return {sort.slot_rows.buffer, DType::i32, {sort.ids.shape[0], sort.ids.shape[1]}};
}

/// Memory for the router's weight of each row, in a workspace. Empty if the final sum multiplies by the weights.
struct RowWeights {
  RowWeights(WorkspaceLayout& workspace, const ExpertProblem& problem, const SortLayout& sort)
      : wanted(problem.experts_weight()), rows(workspace.add(DType::f32, {wanted ? sort.rows() : 0, 1})) {}
  /// The weights of the rows in the order of that sort. @param weights  of its slots, contiguous; absent: there are
  /// none
  /// Async: no kernel, or one
  TensorView in_order(StreamView stream, TensorView weights, const expert_sort::Args& sort, BufferView memory) const;

  bool wanted;
  TensorView rows;  ///< Shape: [R, 1] f32
};
/// The weights for the final sum; absent if the experts multiply by them.
inline TensorView weights_of_sum(const ExpertProblem& problem, TensorView weights) {
  return problem.experts_weight() ? TensorView() : weights;
}
/// Views the slots as one column. Shape: [N * K, 1]
inline TensorView as_slots(const TensorView& weights) {
  return {weights.buffer, weights.dtype, {weights.elements(), 1}};
}

/// The result of finish_combine if nothing is left to sum.
inline combine::Args sums_alone(TensorView sums) {
  combine::Args none;
  none.rows = sums;
  return none;
}
/// The weighted sums of this rank's share of the tokens, as arguments for the caller to enqueue. With a tp group they
/// are enqueued here, and `sums` gets those of the whole group.
/// @param rows  Expert rows that came home. @param share  Scratch, [share, H] f32. @param sums  Shape: [T, H] f32
/// @param reduce  false: `sums` are 0 except for this rank's share, and nothing is gathered
/// @param stays   how long `share` stays unchanged
combine::Args combine_home(const ExpertRank& rank, const WireRows& rows, TensorView slot_rows, TensorView weights,
                           TensorView share, TensorView sums, bool reduce, Shown stays = Shown::until_next);

/// A strategy whose failures end the group. @param memory  of its steps, which the caller begins; null: its own
std::unique_ptr<Strategy> make_strategy(StrategyKind kind, const ExpertRank& rank, const ExpertProblem& problem,
                                        StepMemory* memory);

// The strategies behind make_strategy. Their steps take memory from `memory`, which outlives them.
std::unique_ptr<Strategy> make_mc2(const ExpertRank& rank, const ExpertProblem& problem, StepMemory& memory);
/// @param rank  with more than one node
std::unique_ptr<Strategy> make_mc2_over_nodes(const ExpertRank& rank, const ExpertProblem& problem, StepMemory& memory);
std::unique_ptr<Strategy> make_all_gather(const ExpertRank& rank, const ExpertProblem& problem, bool by_broadcast,
                                          StepMemory& memory);
std::unique_ptr<Strategy> make_all2all_v(const ExpertRank& rank, const ExpertProblem& problem, StepMemory& memory);

}  // namespace moecl
