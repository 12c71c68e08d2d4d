// MC2 over nodes. A token crosses to a node once, to the rank there that has its own rank's index; that one hands it on
// within the node as MC2 does. On the way back the node's weighted sum of the token crosses.
#include <moecl/context.hpp>
#include <moecl/index_vectors.hpp>

#include <numeric>
#include <optional>

#include "dispatch/strategies/strategy_parts.hpp"

namespace moecl {
namespace {

/// What travels within a node does so as it came.
ExpertProblem within_node(ExpertProblem problem) {
  problem.wire = WireFormat::none;
  return problem;
}

class Mc2OverNodes final : public Strategy {
 public:
  Mc2OverNodes(const ExpertRank& rank, const ExpertProblem& problem)
      : rank_(rank), problem_(problem), in_node_(make_mc2(rank.of_node(), within_node(problem))) {}

  StepNeeds needs(std::int64_t /*tokens*/) const override {
    StepNeeds needs;
    needs.fills_sums = rank_.tp.size() > 1;
    return needs;
  }

  std::optional<expert_sort::Args> prepare(const TokensIn& tokens, BufferView /*workspace*/) override {
    const std::vector<std::int64_t> counts = agree_on_tokens(StrategyKind::mc2, rank_, problem_, tokens);
    const std::int32_t tp = rank_.tp.size();
    share_ = share_of(tokens.x.shape[0], tp, rank_.tp.rank());
    relayed_.clear();
    for (std::int32_t n = 0; n < rank_.peers.size(); ++n) {
      const std::int32_t peer = n * rank_.node.size() + rank_.node.rank();
      relayed_.push_back(share_of(counts[static_cast<std::size_t>(peer)], tp, peer % tp).count);
    }
    total_ = std::accumulate(relayed_.begin(), relayed_.end(), std::int64_t{0});

    tokens_ = tokens;
    return std::nullopt;
  }

  /// To the other nodes.
  void begin_dispatch() override {
    const StreamView stream = rank_.ep.rank_stream();
    const TokensIn& tokens = tokens_;
    const std::int32_t top_k = problem_.top_k;
    WorkspaceLayout layout;
    const WireRow row = WireRow::to_experts(problem_, tokens);
    const WireRows::Layout own(layout, row, row.scale ? share_.count : 0, problem_.hidden),
        all(layout, row, total_, problem_.hidden);
    const TensorView own_ids = layout.add(DType::i32, {share_.count * top_k}),
                     ids = layout.add(DType::i32, {total_, top_k}), weights = layout.add(DType::f32, {total_, top_k});
    const BufferView memory = dispatch_memory_.reserve(*stream.context, layout.total_bytes());

    const WireRows mine = packed(stream, rows_of(tokens, share_), own, memory), x = all.in(memory);
    // Ids that do not exist are told here: the other ranks would count the slots differently.
    const TensorView checked_ids = tensor_in(memory, own_ids);
    index_vectors::enqueue(
        stream, index_vectors::Narrow{
                    tokens.ids.rows(share_.begin, share_.count), -1, rank_.experts, -1, {}, checked_ids, tokens.fault});
    here_ = {};
    here_.x = x.codes;
    here_.x_scale = x.scale;
    here_.x_group = x.group;
    here_.ids = tensor_in(memory, ids);
    rank_.ep.fork();
    WireRows::each(mine, x, [&](const TensorView& from, const TensorView& to) { collect(from, to); });
    collect(checked_ids, here_.ids);
    if (tokens.weights.present()) {
      here_.weights = tensor_in(memory, weights);
      collect(weights_of(tokens, share_), here_.weights);
    }
  }

  /// Within the node.
  void hook() override {
    rank_.ep.join();
    in_node_->prepare(here_, {});
    in_node_->begin_dispatch();
    in_node_->hook();
  }

  RoutedRows receive() override { return in_node_->receive(); }

  void begin_combine(TensorView expert_rows, TensorView sums) override {
    const StreamView stream = rank_.ep.rank_stream();
    const std::int32_t nodes = rank_.peers.size();
    WorkspaceLayout layout;
    const WireRow row = WireRow::to_home(problem_, problem_.dtype);
    const DType sum_type = row.scale ? DType::f32 : problem_.dtype;
    const TensorView sums_at = layout.add(sum_type, {total_, problem_.hidden}),
                     order = layout.add(DType::i32, {share_.count, nodes}),
                     share = layout.add(DType::f32, {share_.count, problem_.hidden});
    codes_.emplace(layout, row, row.scale ? total_ : 0, problem_.hidden);
    const WireRows::Layout home(layout, row, nodes * share_.count, problem_.hidden);
    memory_ = combine_memory_.reserve(*stream.context, layout.total_bytes());
    node_sums_ = tensor_in(memory_, sums_at);
    by_node_ = tensor_in(memory_, order);
    share_out_ = tensor_in(memory_, share);
    came_home_ = home.in(memory_);
    sums_ = sums;
    in_node_->begin_combine(expert_rows, {});
  }

  /// What is to cross to other nodes is known only now.
  combine::Args finish_combine() override {
    const StreamView stream = rank_.ep.rank_stream();
    combine::Args in_node = in_node_->finish_combine();
    in_node.out = node_sums_;
    combine::enqueue(stream, in_node);
    const WireRows sums = packed(stream, {node_sums_, {}}, *codes_, memory_);
    rank_.ep.fork();
    WireRows::each(sums, came_home_, [&](const TensorView& from, const TensorView& to) { bring_home(from, to); });
    rank_.ep.join();
    index_vectors::enqueue(stream, index_vectors::ColumnOrder{by_node_});
    const TensorView slot_rows(by_node_.buffer, DType::i32, {by_node_.shape[0] * by_node_.shape[1]});
    return combine_home(rank_, came_home_, slot_rows, {}, share_out_, sums_);
  }

  std::uint64_t workspace_bytes() const noexcept override {
    return dispatch_memory_.capacity_bytes() + combine_memory_.capacity_bytes() + in_node_->workspace_bytes();
  }

 private:
  /// The rows of the ranks with this index on all nodes, one after the other.
  void collect(const TensorView& mine, const TensorView& all) {
    std::vector<std::uint64_t> bytes;
    for (const std::int64_t count : relayed_) bytes.push_back(bytes_of(all, count));
    rank_.peers.all_gather_v(mine.buffer.slice(0, mine.size_bytes()), all.buffer.slice(0, all.size_bytes()), bytes);
  }
  /// The sums of every rank with this index to that rank; this rank's own come from every node.
  void bring_home(const TensorView& sums, const TensorView& home) {
    Communicator::Blocks sends, receives;
    std::uint64_t at = 0;
    for (std::size_t n = 0; n < relayed_.size(); ++n) {
      sends.offsets.push_back(at);
      sends.bytes.push_back(bytes_of(sums, relayed_[n]));
      at += sends.bytes.back();
      receives.bytes.push_back(bytes_of(home, share_.count));
      receives.offsets.push_back(n * receives.bytes.back());
    }
    rank_.peers.all_to_all_v(sums.buffer.slice(0, sums.size_bytes()), sends, home.buffer.slice(0, home.size_bytes()),
                             receives);
  }

  ExpertRank rank_;
  ExpertProblem problem_;
  std::unique_ptr<Strategy> in_node_;
  Workspace dispatch_memory_, combine_memory_;
  Share share_{};
  std::vector<std::int64_t> relayed_;  ///< tokens of each node's rank with this index
  std::int64_t total_ = 0;
  // Between the steps.
  BufferView memory_;
  TokensIn tokens_;
  TokensIn here_;  ///< those of `relayed_`
  std::optional<WireRows::Layout> codes_;
  WireRows came_home_;
  TensorView node_sums_, by_node_, share_out_, sums_;
};

}  // namespace

std::unique_ptr<Strategy> make_mc2_over_nodes(const ExpertRank& rank, const ExpertProblem& problem) {
  return std::make_unique<Mc2OverNodes>(rank, problem);
}

}  // namespace moecl
