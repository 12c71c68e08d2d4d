#pragma once
// What the strategies have in common.
#include <moecl/device.hpp>
#include <moecl/strategy.hpp>
#include <moecl/workspace.hpp>

#include "dispatch/exchange.hpp"
#include "dispatch/step_memory.hpp"
#include "dispatch/strategies/wire.hpp"
#include "runtime/check.hpp"

namespace moecl {

/// What ranks have alike wherever tokens travel so.
std::vector<Agreed> agreed_about(StrategyKind kind, const ExpertRank& rank, const ExpertProblem& problem);
/// Tokens of every ep rank, where all agree about the rest, and a tp group about its tokens. One meeting.
/// Errors: invalid_argument  on every rank
std::vector<std::int64_t> share_tokens(const char* what, const ExpertRank& rank, std::int64_t tokens,
                                       std::vector<Agreed> agreed);
/// Tokens of every ep rank's tp group. Everyone must agree about the problem and what tokens consist of, and a tp group
/// about its tokens.
/// Where that was done before, no meeting. Errors: invalid_argument  on every rank
/// @param asked  out: what is returned, where it was not known
const std::vector<std::int64_t>& agree_on_tokens(StrategyKind kind, const ExpertRank& rank,
                                                 const ExpertProblem& problem, const TokensIn& tokens,
                                                 std::vector<std::int64_t>& asked);
/// counts = the tokens of each dp rank. @param of_ranks  of each rank of `ep`
void count_by_dp_rank(const ExpertRank& rank, const std::vector<std::int64_t>& of_ranks,
                      std::vector<std::int64_t>& counts);

/// Rows of the weights, where there are any.
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
/// So many rows of a matrix, or elements of a vector.
inline std::uint64_t bytes_of(const TensorView& view, std::int64_t rows) {
  return bytes_of(view.dtype, rows, view.rank == 1 ? 1 : view.shape[1]);
}

inline BufferView whole(const TensorView& view) { return view.buffer.slice(0, view.size_bytes()); }

/// Rows of `from` that arrive as rows of `to`.
Communicator::Exchange::Piece piece_of(const TensorView& from, const TensorView& to);

/// What a strategy shows to its peers last in a step. It has to stay when the step is over, until the next step's first
/// exchange, so it is not of the memory that steps take turns in. Grows with the steps seen.
class Outbox {
 public:
  BufferView take(const ExpertRank& rank, const WorkspaceLayout& layout) {
    return memory_.reserve(*rank.ep.rank_stream().context, layout.total_bytes());
  }
  std::uint64_t bytes() const noexcept { return memory_.capacity_bytes(); }

 private:
  Workspace memory_;
};

/// Row ends, order and its inverse of slots sorted by expert, in memory of a workspace.
struct SortLayout {
  /// @param rows_per_expert_  0: standard layout; else batched
  SortLayout(WorkspaceLayout& workspace, std::int64_t slots, std::int32_t experts, const DeviceCaps& caps,
             std::int64_t rows_per_expert = 0);
  /// The sort by experts [first, first + experts) of `total`. @param ids  Shape: [T, K] i32
  expert_sort::Args in(BufferView memory, TensorView ids, std::int32_t first, std::int32_t total,
                       TensorView fault) const;
  /// The most there can be.
  std::int64_t rows() const noexcept { return rows_per_expert == 0 ? slots : rows_per_expert * experts; }

  std::int64_t slots;
  std::int32_t experts;
  std::int64_t rows_per_expert;

 private:
  TensorView row_ends_, sorted_slots_, slot_rows_;
  std::uint64_t scratch_, scratch_bytes_;
};

/// Copies of rows for the experts, where the layout of that sort is batched.
struct BatchedLayout {
  BatchedLayout(WorkspaceLayout& workspace, const WireRow& row, const SortLayout& sort, std::int64_t hidden) {
    if (sort.rows_per_expert != 0) rows.emplace(workspace, row, sort.rows(), hidden);
  }
  std::optional<WireRows::Layout> rows;
};
/// What the experts get after that sort: `rows` in place, or copied. Async: no kernel, or one for the rows and one for
/// scales
RoutedRows rows_in_order(StreamView stream, const WireRows& rows, const expert_sort::Args& sort, std::int32_t divisor,
                         const BatchedLayout& batched, BufferView memory);
/// Of experts who sum: which of the rows in the order of that sort are a token's; else nothing.
inline TensorView rows_of_tokens(const ExpertProblem& problem, const expert_sort::Args& sort) {
  if (!problem.experts_sum()) return {};
  return {sort.slot_rows.buffer, DType::i32, {sort.ids.shape[0], sort.ids.shape[1]}};
}

/// The router's weight of each row, in memory of a workspace; nothing where the sum multiplies by them.
struct RowWeights {
  RowWeights(WorkspaceLayout& workspace, const ExpertProblem& problem, const SortLayout& sort)
      : wanted(problem.experts_weight()), rows(workspace.add(DType::f32, {wanted ? sort.rows() : 0, 1})) {}
  /// Those of the rows in the order of that sort. @param weights  of its slots, contiguous; absent: there are none
  /// Async: no kernel, or one
  TensorView in_order(StreamView stream, TensorView weights, const expert_sort::Args& sort, BufferView memory) const;

  bool wanted;
  TensorView rows;  ///< Shape: [R, 1] f32
};
/// What is left for the sum to multiply by.
inline TensorView weights_of_sum(const ExpertProblem& problem, TensorView weights) {
  return problem.experts_weight() ? TensorView() : weights;
}
/// Slots one below the other. Shape: [N * K, 1]
inline TensorView as_slots(const TensorView& weights) {
  return {weights.buffer, weights.dtype, {weights.elements(), 1}};
}

/// What finish_combine says where nothing is left to sum.
inline combine::Args sums_alone(TensorView sums) {
  combine::Args none;
  none.rows = sums;
  return none;
}
/// The weighted sums of this rank's share of the tokens, to be enqueued by the caller; those of a whole tp group are
/// made here and brought to `sums`.
/// @param rows  Expert rows that came home. @param share  Scratch, [share, H] f32. @param sums  Shape: [T, H] f32
/// @param reduce  false: `sums` are 0 but for this rank's share, and nothing is brought
/// @param stays   how long `share` stays as it is
combine::Args combine_home(const ExpertRank& rank, const WireRows& rows, TensorView slot_rows, TensorView weights,
                           TensorView share, TensorView sums, bool reduce, Shown stays = Shown::until_next);

/// A strategy whose failures end the group. @param memory  of its steps, which their caller begins; null: its own
std::unique_ptr<Strategy> make_strategy(StrategyKind kind, const ExpertRank& rank, const ExpertProblem& problem,
                                        StepMemory* memory);

// What those are made of. Steps take their memory from `memory`, which outlives them.
std::unique_ptr<Strategy> make_mc2(const ExpertRank& rank, const ExpertProblem& problem, StepMemory& memory);
/// @param rank  Of more than one node
std::unique_ptr<Strategy> make_mc2_over_nodes(const ExpertRank& rank, const ExpertProblem& problem, StepMemory& memory);
std::unique_ptr<Strategy> make_all_gather(const ExpertRank& rank, const ExpertProblem& problem, bool by_broadcast,
                                          StepMemory& memory);
std::unique_ptr<Strategy> make_all2all_v(const ExpertRank& rank, const ExpertProblem& problem, StepMemory& memory);

}  // namespace moecl
