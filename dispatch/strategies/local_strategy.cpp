#include "dispatch/strategies/local_strategy.hpp"

namespace moecl {

/// Layout of the caller's workspace.
struct LocalStrategy::Layout {
  WorkspaceLayout workspace;
  SortLayout sort;
  BatchedLayout batched;
  RowWeights row_weights;

  Layout(const LocalStrategy& of, std::int64_t tokens, const WireRow& row)
      : sort(workspace, tokens * of.problem_.top_k, of.experts_, of.stream_.device->caps,
             of.problem_.rows_per_expert(tokens)),
        batched(workspace, row, sort, of.problem_.hidden),
        row_weights(workspace, of.problem_, sort) {}
};

StepNeeds LocalStrategy::needs(std::int64_t tokens) const {
  const Layout layout(*this, tokens, {problem_.dtype, std::nullopt});
  StepNeeds needs;
  needs.workspace_bytes = layout.workspace.total_bytes();
  needs.rows = layout.sort.rows();
  needs.source_rows = problem_.batched ? needs.rows : tokens;
  needs.in_place = !problem_.batched;
  needs.local = needs.in_place && !problem_.experts_weight();
  needs.fills_sums = problem_.experts_sum();
  return needs;
}

StepBytes LocalStrategy::bytes(const std::vector<std::int64_t>& tokens) const {
  const StepNeeds step = needs(tokens.front());
  return {0, 0, step.source_rows, step.rows};
}

std::optional<expert_sort::Args> LocalStrategy::prepare(const TokensIn& tokens, BufferView workspace) {
  tokens_ = tokens;
  memory_ = workspace;
  const Layout layout(*this, tokens.x.shape[0], WireRow::to_experts(problem_, tokens));
  sort_ = layout.sort.in(workspace, tokens.ids, 0, experts_, tokens.fault);
  return sort_;
}

RoutedRows LocalStrategy::receive() {
  const Layout layout(*this, tokens_.x.shape[0], WireRow::to_experts(problem_, tokens_));
  RoutedRows rows = rows_in_order(stream_, {tokens_.x, tokens_.x_scale, tokens_.x_group}, sort_, problem_.top_k,
                                  layout.batched, memory_);
  rows.weights = layout.row_weights.in_order(stream_, tokens_.weights, sort_, memory_);
  rows.slot_rows = rows_of_tokens(problem_, sort_);
  return rows;
}

void LocalStrategy::begin_combine(TensorView expert_rows, TensorView sums) {
  expert_rows_ = expert_rows;
  if (problem_.experts_sum()) enqueue_copy(stream_, whole(expert_rows), whole(expert_rows_ = sums));
}

combine::Args LocalStrategy::finish_combine() {
  if (problem_.experts_sum()) return sums_alone(expert_rows_);
  combine::Args sum;
  sum.rows = expert_rows_;
  sum.slot_rows = sort_.slot_rows;
  sum.weights = weights_of_sum(problem_, tokens_.weights);
  return sum;
}

std::unique_ptr<Strategy> Strategy::make_local(StreamView stream, std::int32_t experts, const ExpertProblem& problem) {
  return std::make_unique<LocalStrategy>(stream, experts, problem);
}

}  // namespace moecl
