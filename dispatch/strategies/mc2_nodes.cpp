// MC2 over nodes. A token crosses to another node once, to the rank there with the same index as its own rank. That
// rank relays it within its node by MC2. On the way back the node's weighted sum of the token crosses once.
#include <moecl/context.hpp>
#include <moecl/index_vectors.hpp>

#include <numeric>
#include <optional>

#include "dispatch/strategies/strategy_parts.hpp"

namespace moecl {
namespace {

/// Within a node rows travel in the format in which they came.
ExpertProblem within_node(ExpertProblem problem) {
  problem.wire = WireFormat::none;
  return problem;
}

class Mc2OverNodes final : public Strategy {
 public:
  Mc2OverNodes(const ExpertRank& rank, const ExpertProblem& problem, StepMemory& memory)
      : rank_(rank),
        problem_(problem),
        step_memory_(memory),
        in_node_(make_mc2(rank.of_node(), within_node(problem), memory)) {}

  StepNeeds needs(std::int64_t /*tokens*/) const override {
    StepNeeds needs;
    needs.fills_sums = rank_.tp.size() > 1;
    return needs;
  }

  StepBytes bytes(const std::vector<std::int64_t>& tokens) const override {
    const std::int64_t own =
        share_of(tokens[static_cast<std::size_t>(rank_.ep.rank())], rank_.tp.size(), rank_.tp.rank()).count;
    const std::vector<std::int64_t> in_node = relayed_in_node(tokens);
    const std::int64_t total = in_node[static_cast<std::size_t>(rank_.node.rank())];
    StepBytes bytes = in_node_->bytes(in_node);
    bytes.workspace += DispatchLayout(*this, WireRow::to_experts(problem_, {}), own, total).workspace.total_bytes() +
                       CombineLayout(*this, own).workspace.total_bytes();
    bytes.windows += LeavingLayout(*this, total).workspace.total_bytes();
    return bytes;
  }

  std::optional<expert_sort::Args> prepare(const TokensIn& tokens, BufferView /*workspace*/) override {
    std::vector<std::int64_t> asked;
    const std::vector<std::int64_t>& counts = agree_on_tokens(StrategyKind::mc2, rank_, problem_, tokens, asked);
    share_ = share_of(tokens.x.shape[0], rank_.tp.size(), rank_.tp.rank());
    relayed_ = relayed_by(rank_.node.rank(), counts);
    in_node_tokens_ = relayed_in_node(counts);
    total_ = in_node_tokens_[static_cast<std::size_t>(rank_.node.rank())];
    tokens_ = tokens;
    return std::nullopt;
  }

  /// Exchanges tokens between nodes, among the ranks of one index.
  void begin_dispatch() override {
    const StreamView stream = rank_.ep.rank_stream();
    const TokensIn& tokens = tokens_;
    const DispatchLayout layout(*this, WireRow::to_experts(problem_, tokens), share_.count, total_);
    const BufferView memory = step_memory_.take(*stream.context, layout.workspace.total_bytes());

    const WireRows mine = packed(stream, rows_of(tokens, share_), layout.own, memory), x = layout.all.in(memory);
    // Invalid ids are reported here, at home: on the other ranks slots have other numbers.
    const TensorView checked_ids = tensor_in(memory, layout.own_ids);
    index_vectors::enqueue(
        stream, index_vectors::Narrow{
                    tokens.ids.rows(share_.begin, share_.count), -1, rank_.experts, -1, {}, checked_ids, tokens.fault});
    here_ = {};
    here_.x = x.codes;
    here_.x_scale = x.scale;
    here_.x_group = x.group;
    here_.ids = tensor_in(memory, layout.ids);
    here_.tokens_of_ranks = &in_node_tokens_;
    rank_.ep.fork();
    std::vector<Communicator::Exchange::Piece> pieces;
    pieces.reserve(4);
    const auto collect = [&](const TensorView& from, const TensorView& to) { pieces.push_back(piece_of(from, to)); };
    WireRows::each(mine, x, collect);
    collect(checked_ids, here_.ids);
    if (tokens.weights.present()) {
      here_.weights = tensor_in(memory, layout.weights);
      collect(weights_of(tokens, share_), here_.weights);
    }
    Communicator::Exchange(rank_.peers).gather(pieces, relayed_, Shown::until_next);
  }

  /// Begins MC2 within the node.
  void hook() override {
    rank_.ep.join();
    in_node_->prepare(here_, {});
    in_node_->begin_dispatch();
    in_node_->hook();
  }

  RoutedRows receive() override { return in_node_->receive(); }

  void begin_combine(TensorView expert_rows, TensorView sums) override {
    const StreamView stream = rank_.ep.rank_stream();
    const CombineLayout layout(*this, share_.count);
    const BufferView memory = step_memory_.take(*stream.context, layout.workspace.total_bytes());
    by_node_ = tensor_in(memory, layout.order);
    share_out_ = tensor_in(memory, layout.share);
    came_home_ = layout.home.in(memory);
    sums_ = sums;
    in_node_->begin_combine(expert_rows, {});
  }

  /// The sums that cross to other nodes are known only now.
  combine::Args finish_combine() override {
    const StreamView stream = rank_.ep.rank_stream();
    combine::Args in_node = in_node_->finish_combine();
    const LeavingLayout layout(*this, total_);
    const BufferView memory = outbox_.take(rank_, layout.workspace);
    in_node.out = tensor_in(memory, layout.sums);
    combine::enqueue(stream, in_node);
    const WireRows sums = packed(stream, {in_node.out, {}}, layout.codes, memory);
    rank_.ep.fork();
    std::vector<Communicator::Exchange::Piece> pieces;
    pieces.reserve(2);
    WireRows::each(sums, came_home_,
                   [&](const TensorView& from, const TensorView& to) { pieces.push_back(piece_of(from, to)); });
    set_runs_home();
    Communicator::Exchange(rank_.peers).all_to_all(pieces, sends_home_, own_, Shown::until_next);
    rank_.ep.join();
    index_vectors::enqueue(stream, index_vectors::ColumnOrder{by_node_});
    const TensorView slot_rows(by_node_.buffer, DType::i32, {by_node_.shape[0] * by_node_.shape[1]});
    // until_read: the ranks of a tp group may be on several nodes, so the first exchange of the next step is not among
    // them.
    return combine_home(rank_, came_home_, slot_rows, {}, share_out_, sums_, tokens_.reduce_results, Shown::until_read);
  }

  std::uint64_t workspace_bytes() const noexcept override { return outbox_.bytes() + in_node_->workspace_bytes(); }

 private:
  struct DispatchLayout {
    WorkspaceLayout workspace;
    WireRows::Layout own, all;
    TensorView own_ids, ids, weights;

    DispatchLayout(const Mc2OverNodes& of, const WireRow& row, std::int64_t share, std::int64_t total)
        : own(workspace, row, row.scale ? share : 0, of.problem_.hidden),
          all(workspace, row, total, of.problem_.hidden),
          own_ids(workspace.add(DType::i32, {share * of.problem_.top_k})),
          ids(workspace.add(DType::i32, {total, of.problem_.top_k})),
          weights(workspace.add(DType::f32, {total, of.problem_.top_k})) {}
  };
  /// Format of a row on its way home from another node.
  WireRow home_row() const { return WireRow::to_home(problem_, problem_.dtype); }
  struct LeavingLayout {
    WorkspaceLayout workspace;
    TensorView sums;
    WireRows::Layout codes;

    LeavingLayout(const Mc2OverNodes& of, std::int64_t total)
        : sums(workspace.add(of.home_row().scale ? DType::f32 : of.problem_.dtype, {total, of.problem_.hidden})),
          codes(workspace, of.home_row(), of.home_row().scale ? total : 0, of.problem_.hidden) {}
  };
  struct CombineLayout {
    WorkspaceLayout workspace;
    TensorView order, share;
    WireRows::Layout home;

    CombineLayout(const Mc2OverNodes& of, std::int64_t own)
        : order(workspace.add(DType::i32, {own, of.rank_.peers.size()})),
          share(workspace.add(DType::f32, {own, of.problem_.hidden})),
          home(workspace, of.home_row(), of.rank_.peers.size() * own, of.problem_.hidden) {}
  };

  /// Tokens of each node's rank with that index.
  std::vector<std::int64_t> relayed_by(std::int32_t index, const std::vector<std::int64_t>& tokens) const {
    const std::int32_t tp = rank_.tp.size();
    std::vector<std::int64_t> relayed;
    for (std::int32_t n = 0; n < rank_.peers.size(); ++n) {
      const std::int32_t peer = n * rank_.node.size() + index;
      relayed.push_back(share_of(tokens[static_cast<std::size_t>(peer)], tp, peer % tp).count);
    }
    return relayed;
  }
  /// Tokens that each rank of the node relays.
  std::vector<std::int64_t> relayed_in_node(const std::vector<std::int64_t>& tokens) const {
    std::vector<std::int64_t> relayed;
    for (std::int32_t index = 0; index < rank_.node.size(); ++index) {
      const std::vector<std::int64_t> theirs = relayed_by(index, tokens);
      relayed.push_back(std::accumulate(theirs.begin(), theirs.end(), std::int64_t{0}));
    }
    return relayed;
  }
  /// Sends each rank of this index the sums of its tokens. Receives this rank's own sums from every node.
  void set_runs_home() {
    sends_home_.clear(), own_.clear();
    std::int64_t sent = 0;
    for (std::size_t n = 0; n < relayed_.size(); ++n) {
      sends_home_.add(sent, relayed_[n]);
      own_.add(static_cast<std::int64_t>(n) * share_.count, share_.count);
      sent += relayed_[n];
    }
  }

  ExpertRank rank_;
  ExpertProblem problem_;
  StepMemory& step_memory_;
  std::unique_ptr<Strategy> in_node_;
  Share share_{};
  std::vector<std::int64_t> relayed_;         ///< tokens of each node's rank with this index
  std::vector<std::int64_t> in_node_tokens_;  ///< tokens that each rank of the node relays
  std::int64_t total_ = 0;
  Outbox outbox_;
  Communicator::Exchange::Runs sends_home_, own_;
  // State between the calls of a step.
  TokensIn tokens_;
  TokensIn here_;  ///< the tokens that this rank relays
  WireRows came_home_;
  TensorView by_node_, share_out_, sums_;
};

}  // namespace

std::unique_ptr<Strategy> make_mc2_over_nodes(const ExpertRank& rank, const ExpertProblem& problem,
                                              StepMemory& memory) {
  return std::make_unique<Mc2OverNodes>(rank, problem, memory);
}

}  // namespace moecl
