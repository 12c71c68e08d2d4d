// AllGather and multicast: every rank gets the tokens of all dp ranks and computes those that chose one of its experts.
// A reduction then adds the partial sums.
#include <moecl/combine.hpp>
#include <moecl/context.hpp>

#include <numeric>
#include <optional>

#include "dispatch/strategies/strategy_parts.hpp"

namespace moecl {
namespace {

class AllGather final : public Strategy {
 public:
  AllGather(const ExpertRank& rank, const ExpertProblem& problem, bool by_broadcast, StepMemory& memory)
      : rank_(rank), problem_(problem), by_broadcast_(by_broadcast), step_memory_(memory) {}

  StepNeeds needs(std::int64_t tokens) const override {
    StepNeeds needs;
    if (!all_are_here()) return needs;
    needs.rows = rows_of_experts(tokens);
    needs.source_rows = problem_.batched ? needs.rows : tokens;
    needs.in_place = !problem_.batched && problem_.wire == WireFormat::none;
    return needs;
  }

  StepBytes bytes(const std::vector<std::int64_t>& tokens) const override {
    std::vector<std::int64_t> of_dp_ranks;
    count_by_dp_rank(rank_, tokens, of_dp_ranks);
    const std::int64_t total = total_of(of_dp_ranks), rows = rows_of_experts(total);
    const std::int64_t own = tokens[static_cast<std::size_t>(rank_.ep.rank())];
    return {DispatchLayout(*this, WireRow::to_experts(problem_, {}), own, total).workspace.total_bytes(),
            PartialLayout(*this, total).workspace.total_bytes() +
                ShareLayout(*this, total, own, true).workspace.total_bytes(),
            problem_.batched ? rows : total, rows};
  }

  std::optional<expert_sort::Args> prepare(const TokensIn& tokens, BufferView /*workspace*/) override {
    const StreamView stream = rank_.ep.rank_stream();
    const StrategyKind kind = by_broadcast_ ? StrategyKind::multicast : StrategyKind::all_gather;
    std::vector<std::int64_t> asked;
    count_by_dp_rank(rank_, agree_on_tokens(kind, rank_, problem_, tokens, asked), tokens_);
    total_ = total_of(tokens_);
    brought_ = tokens;
    layout_.emplace(*this, WireRow::to_experts(problem_, tokens), tokens.x.shape[0], total_);
    memory_ = step_memory_.take(*stream.context, layout_->workspace.total_bytes());

    all_x_ = layout_->all.in(memory_);
    all_ids_ = all_are_here() ? tokens.ids : tensor_in(memory_, layout_->ids);
    all_weights_ = tokens.weights;
    if (tokens.weights.present() && !all_are_here()) all_weights_ = tensor_in(memory_, layout_->weights);
    // A rank without experts sorts by one expert that no token chose.
    const std::int32_t first = rank_.local_experts > 0 ? rank_.first_expert : rank_.experts;
    sort_ = layout_->by_expert.in(memory_, all_ids_, first, std::max(rank_.experts, first + sorted_experts()),
                                  tokens.fault);
    if (all_are_here()) return sort_;
    return std::nullopt;
  }

  void begin_dispatch() override {
    const WireRows mine =
        packed(rank_.ep.rank_stream(), rows_of(brought_, {0, brought_.x.shape[0]}), layout_->codes, memory_);
    if (all_are_here()) {
      all_x_ = mine;
      return;
    }
    rank_.ep.fork();
    std::vector<Communicator::Exchange::Piece> pieces;
    pieces.reserve(4);
    const auto bring = [&](const TensorView& from, const TensorView& to) { pieces.push_back(piece_of(from, to)); };
    WireRows::each(mine, all_x_, bring);
    bring(brought_.ids, all_ids_);
    if (all_weights_.present()) bring(brought_.weights, all_weights_);
    Communicator::Exchange(rank_.dp).gather(pieces, tokens_, Shown::until_next);
  }

  RoutedRows receive() override {
    const StreamView stream = rank_.ep.rank_stream();
    if (!all_are_here()) {
      rank_.ep.join();
      expert_sort::enqueue(stream, sort_);
    }
    RoutedRows rows = rows_in_order(stream, all_x_, sort_, problem_.top_k, layout_->batched, memory_);
    rows.weights = layout_->row_weights.in_order(stream, all_weights_, sort_, memory_);
    rows.slot_rows = rows_of_tokens(problem_, sort_);
    return rows;
  }

  void begin_combine(TensorView expert_rows, TensorView sums) override {
    sums_ = sums;
    const StreamView stream = rank_.ep.rank_stream();
    const PartialLayout layout(*this, total_);
    const ShareLayout shown(*this, total_, sums.shape[0], brought_.reduce_results);
    const TensorView share =
        tensor_in(shares_[brought_.reduce_results ? 1 : 0].take(rank_, shown.workspace), shown.sums);
    const TensorView partial = tensor_in(partials_.take(rank_, layout.workspace), layout.sums);
    if (problem_.experts_sum()) {
      enqueue_copy(stream, whole(expert_rows), whole(partial));
    } else {
      combine::Args args;
      args.rows = expert_rows;
      args.slot_rows = sort_.slot_rows;
      args.weights = weights_of_sum(problem_, all_weights_);
      args.out = partial;
      combine::enqueue(stream, args);
    }
    rank_.ep.fork();
    if (!by_broadcast_) {
      Communicator::Exchange(rank_.dp).reduce_scatter(partial, sums, tokens_, Shown::until_next);
      if (rank_.tp.size() > 1 && brought_.reduce_results)
        Communicator::Exchange(rank_.tp).all_reduce(sums, share, Shown::until_next);
      return;
    }
    Communicator::Exchange(summing(brought_.reduce_results)).all_reduce(partial, share, Shown::until_next);
    const std::int64_t first = std::accumulate(tokens_.begin(), tokens_.begin() + rank_.dp.rank(), std::int64_t{0});
    const TensorView own = partial.rows(first, sums.shape[0]);
    enqueue_copy(rank_.ep.stream(), whole(own), whole(sums));
  }

  combine::Args finish_combine() override {
    rank_.ep.join();
    return sums_alone(sums_);
  }

  std::uint64_t workspace_bytes() const noexcept override {
    return partials_.bytes() + shares_[0].bytes() + shares_[1].bytes();
  }

 private:
  struct DispatchLayout {
    WorkspaceLayout workspace;
    WireRows::Layout codes, all;
    TensorView ids, weights;
    SortLayout by_expert;
    BatchedLayout batched;
    RowWeights row_weights;

    DispatchLayout(const AllGather& of, const WireRow& row, std::int64_t own, std::int64_t total)
        : codes(workspace, row, row.scale ? own : 0, of.problem_.hidden),
          all(workspace, row, of.all_are_here() ? 0 : total, of.problem_.hidden),
          ids(workspace.add(DType::i32, {of.all_are_here() ? 0 : total, of.problem_.top_k})),
          weights(workspace.add(DType::f32, {of.all_are_here() ? 0 : total, of.problem_.top_k})),
          by_expert(workspace, total * of.problem_.top_k, of.sorted_experts(), of.rank_.ep.rank_stream().device->caps,
                    of.problem_.rows_per_expert(total)),
          batched(workspace, row, by_expert, of.problem_.hidden),
          row_weights(workspace, of.problem_, by_expert) {}
  };
  /// Partial sums: those of this rank's experts.
  struct PartialLayout {
    WorkspaceLayout workspace;
    TensorView sums;

    PartialLayout(const AllGather& of, std::int64_t total)
        : sums(workspace.add(DType::f32, {total, of.problem_.hidden})) {}
  };
  /// Sums of all experts, for the tokens that this rank reduces for others.
  struct ShareLayout {
    WorkspaceLayout workspace;
    TensorView sums;

    ShareLayout(const AllGather& of, std::int64_t total, std::int64_t own, bool reduce) {
      const Communicator& ranks = of.by_broadcast_ ? of.summing(reduce) : of.rank_.tp;
      const std::int64_t rows = share_of(of.by_broadcast_ ? total : own, ranks.size(), ranks.rank()).count;
      sums = workspace.add(DType::f32, {rows, of.problem_.hidden});
    }
  };

  /// Multicast: the ranks whose partial sums are added.
  const Communicator& summing(bool reduce) const { return reduce ? rank_.ep : rank_.dp; }
  static std::int64_t total_of(const std::vector<std::int64_t>& tokens) {
    return std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0});
  }
  /// The most rows there can be for so many tokens.
  std::int64_t rows_of_experts(std::int64_t tokens) const {
    return problem_.batched ? problem_.rows_per_expert(tokens) * sorted_experts() : tokens * problem_.top_k;
  }
  /// With one dp rank all ranks bring the same tokens: nothing is gathered, and only sums travel.
  bool all_are_here() const { return rank_.dp.size() == 1; }
  std::int32_t sorted_experts() const { return std::max(rank_.local_experts, 1); }

  ExpertRank rank_;
  ExpertProblem problem_;
  bool by_broadcast_;
  StepMemory& step_memory_;
  std::vector<std::int64_t> tokens_;  ///< of each dp rank
  std::int64_t total_ = 0;
  // Separate outboxes, since other ranks read them: a peer that has read a share comes to the next exchange of shares,
  // not to the next exchange of tokens.
  Outbox partials_, shares_[2];  ///< shares: [0] not reduced, [1] reduced results
  // State between the calls of a step.
  BufferView memory_;
  TokensIn brought_;
  std::optional<DispatchLayout> layout_;
  expert_sort::Args sort_;
  WireRows all_x_;
  TensorView all_ids_, all_weights_, sums_;
};

}  // namespace

std::unique_ptr<Strategy> make_all_gather(const ExpertRank& rank, const ExpertProblem& problem, bool by_broadcast,
                                          StepMemory& memory) {
  return std::make_unique<AllGather>(rank, problem, by_broadcast, memory);
}

}  // namespace moecl
