#pragma once
// What the strategies have in common.
#include <moecl/device.hpp>
#include <moecl/strategy.hpp>
#include <moecl/workspace.hpp>

#include "dispatch/share.hpp"
#include "dispatch/wire.hpp"
#include "runtime/check.hpp"

namespace moecl {

/// Tokens of every ep rank's tp group. Everyone must agree about the problem and what tokens consist of, and a tp group
/// about its tokens.
/// Errors: invalid_argument  on every rank
std::vector<std::int64_t> agree_on_tokens(StrategyKind kind, const ExpertRank& rank, const ExpertProblem& problem,
                                          const TokensIn& tokens);

/// Rows of the weights, where there are any.
inline TensorView weights_of(const TokensIn& tokens, Share rows) {
  return tokens.weights.present() ? tokens.weights.rows(rows.begin, rows.count) : TensorView();
}
/// Rows of the hidden states, or of their codes and scales.
inline WireRows rows_of(const TokensIn& tokens, Share rows) {
  return {tokens.x.rows(rows.begin, rows.count),
          tokens.x_scale.present() ? tokens.x_scale.rows(rows.begin, rows.count) : TensorView(), tokens.x_group};
}

/// A range of memory as a tensor of one or two dimensions.
inline TensorView tensor_at(BufferView memory, std::uint64_t offset, DType dtype, std::int64_t rows) {
  return {memory.slice(offset, static_cast<std::uint64_t>(rows) * size_bytes(dtype)), dtype, {rows}};
}
inline TensorView tensor_at(BufferView memory, std::uint64_t offset, DType dtype, std::int64_t rows,
                            std::int64_t columns) {
  return {memory.slice(offset, static_cast<std::uint64_t>(rows * columns) * size_bytes(dtype)), dtype, {rows, columns}};
}
inline std::uint64_t bytes_of(DType dtype, std::int64_t rows, std::int64_t columns = 1) {
  return static_cast<std::uint64_t>(rows * columns) * size_bytes(dtype);
}
/// So many rows of a matrix, or elements of a vector.
inline std::uint64_t bytes_of(const TensorView& view, std::int64_t rows) {
  return bytes_of(view.dtype, rows, view.rank == 1 ? 1 : view.shape[1]);
}

/// Row ends, order and its inverse of slots sorted by expert, in memory of a workspace.
struct SortedSlots {
  TensorView row_ends, sorted_slots, slot_rows;

  struct Layout {
    Layout(WorkspaceLayout& workspace, std::int64_t slots, std::int32_t experts, const DeviceCaps& caps);
    std::uint64_t row_ends, sorted_slots, slot_rows, scratch;
    std::int64_t slots;
    std::int32_t experts;
  };
  /// Experts [first, first + layout.experts) of `total`. @param ids  Shape: [T, K] i32
  static SortedSlots sort(StreamView stream, const Layout& layout, BufferView workspace, TensorView ids,
                          std::int32_t first, std::int32_t total, TensorView fault);
};

/// The weighted sums of this rank's share of the tokens, then those of the whole tp group.
/// @param rows  Expert rows that came home. @param share  Scratch, [share, H] f32. @param out  Shape: [T, H] f32
void combine_home(const ExpertRank& rank, const WireRows& rows, TensorView slot_rows, TensorView weights,
                  TensorView share, TensorView out);

std::unique_ptr<Strategy> make_mc2(const ExpertRank& rank, const ExpertProblem& problem);
/// @param rank  Of more than one node
std::unique_ptr<Strategy> make_mc2_over_nodes(const ExpertRank& rank, const ExpertProblem& problem);
std::unique_ptr<Strategy> make_all_gather(const ExpertRank& rank, const ExpertProblem& problem, bool by_broadcast);
std::unique_ptr<Strategy> make_all2all_v(const ExpertRank& rank, const ExpertProblem& problem);

}  // namespace moecl
