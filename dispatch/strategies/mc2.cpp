// MC2: windows of fixed capacity. Every rank has a slab in the window of every rank, with room for its tokens. So sizes
// are known before any token is routed, and counts stay on the devices. A token goes to a rank at most once. The rows
// of that rank's experts come back, or their weighted sum.
#include <moecl/context.hpp>

#include <algorithm>
#include <optional>

#include "dispatch/put_window.hpp"
#include "dispatch/strategies/mc2_windows.hpp"

namespace moecl {
namespace {

class Mc2 final : public Strategy {
 public:
  Mc2(const ExpertRank& rank, const ExpertProblem& problem, StepMemory& memory)
      : rank_(rank),
        problem_(problem),
        step_memory_(memory),
        pulled_(pulled_windows(rank, problem, memory)),
        put_(PutWindow::reject(rank.ep).empty() ? put_windows(rank, problem, memory) : nullptr) {}

  StepNeeds needs(std::int64_t /*tokens*/) const override {
    StepNeeds needs;
    needs.fills_sums = rank_.tp.size() > 1;
    return needs;
  }

  StepBytes bytes(const std::vector<std::int64_t>& tokens) const override {
    Mc2Tokens mine;
    set_sizes(mine, tokens, WireRow::to_experts(problem_, {}), true);
    const Layout layout(*this, mine);
    const Mc2Windows& windows =
        put_ != nullptr && mine.capacity > 0 && put_windows_fit(rank_, problem_, mine) ? *put_ : *pulled_;
    StepBytes bytes = windows.bytes(mine, layout.received_order.rows());
    bytes.workspace += layout.workspace.total_bytes();
    bytes.windows += ShareLayout(*this, mine).workspace.total_bytes();
    bytes.rows = layout.received_order.rows();
    bytes.source_rows = problem_.batched ? bytes.rows : rank_.ep.size() * mine.capacity;
    return bytes;
  }

  std::optional<expert_sort::Args> prepare(const TokensIn& tokens, BufferView /*workspace*/) override {
    const StreamView stream = rank_.ep.rank_stream();
    reduce_ = tokens.reduce_results;
    std::vector<std::int64_t> asked;
    set_sizes(mine_, agree_on_tokens(StrategyKind::mc2, rank_, problem_, tokens, asked),
              WireRow::to_experts(problem_, tokens), tokens.weights.present(), tokens.capacity);
    layout_.emplace(*this, mine_);
    memory_ = step_memory_.take(*stream.context, layout_->workspace.total_bytes());

    const Share share = share_of(tokens.x.shape[0], rank_.tp.size(), rank_.tp.rank());
    mine_.x = rows_of(tokens, share);
    mine_.ids = tokens.ids.rows(share.begin, share.count);
    const TensorView own_weights = weights_of(tokens, share);
    mine_.weights = mine_.weighted ? own_weights : TensorView();
    home_weights_ = mine_.sums ? TensorView() : weights_of_sum(problem_, own_weights);
    mine_.return_rows = tensor_in(memory_, layout_->return_rows);
    mine_.fault = tokens.fault;
    choose_windows();
    return std::nullopt;
  }

  void begin_dispatch() override { received_ = windows_->dispatch(mine_); }

  RoutedRows receive() override {
    rank_.ep.join();
    // A rank without experts sorts by one expert that no token chose.
    const std::int32_t end = rank_.ep_first_expert + rank_.experts;
    const std::int32_t first = rank_.local_experts > 0 ? rank_.first_expert : end;
    const StreamView stream = rank_.ep.rank_stream();
    const SortLayout& order = layout_->received_order;
    in_order_ = order.in(memory_, received_.ids, first, std::max(end, first + order.experts), {});
    expert_sort::enqueue(stream, in_order_);
    RoutedRows rows = rows_in_order(stream, received_.rows, in_order_, problem_.top_k, layout_->batched, memory_);
    rows.weights = layout_->row_weights.in_order(stream, received_.weights, in_order_, memory_);
    rows.slot_rows = rows_of_tokens(problem_, in_order_);
    received_.weights = weights_of_sum(problem_, received_.weights);
    return rows;
  }

  void begin_combine(TensorView expert_rows, TensorView sums) override {
    const ShareLayout layout(*this, mine_);
    share_out_ = tensor_in(outbox_.take(rank_, layout.workspace), layout.share);
    sums_ = sums;
    came_home_ = windows_->combine(mine_, received_, expert_rows, in_order_);
  }

  combine::Args finish_combine() override {
    rank_.ep.join();
    return combine_home(rank_, came_home_, mine_.return_rows, home_weights_, share_out_, sums_, reduce_);
  }

  std::uint64_t workspace_bytes() const noexcept override {
    return outbox_.bytes() + pulled_->workspace_bytes() + (put_ != nullptr ? put_->workspace_bytes() : 0);
  }

 private:
  struct Layout {
    WorkspaceLayout workspace;
    SortLayout received_order;
    BatchedLayout batched;
    RowWeights row_weights;
    TensorView return_rows;

    Layout(const Mc2& of, const Mc2Tokens& mine) : Layout(of, mine, of.rank_.ep.size() * mine.capacity) {}
    Layout(const Mc2& of, const Mc2Tokens& mine, std::int64_t tokens)
        : received_order(workspace, tokens * of.problem_.top_k, std::max(of.rank_.local_experts, 1),
                         of.rank_.ep.rank_stream().device->caps, of.problem_.rows_per_expert(tokens)),
          batched(workspace, mine.row, received_order, of.problem_.hidden),
          row_weights(workspace, of.problem_, received_order),
          return_rows(workspace.add(DType::i32, {mine.ids.shape[0] * of.problem_.top_k})) {}
  };
  struct ShareLayout {
    WorkspaceLayout workspace;
    TensorView share;  ///< this rank's sums, which the tp group gathers

    ShareLayout(const Mc2& of, const Mc2Tokens& mine)
        : share(workspace.add(DType::f32, {of.rank_.tp.size() > 1 ? mine.ids.shape[0] : 0, of.problem_.hidden})) {}
  };

  /// Sets the sizes of a step: each rank's share of the tokens of its tp group.
  /// @param capacity  of a slab; 0: what is needed
  void set_sizes(Mc2Tokens& mine, const std::vector<std::int64_t>& counts, const WireRow& row, bool weights,
                 std::int64_t capacity = 0) const {
    const std::int32_t tp = rank_.tp.size();
    mine.each.clear();
    for (std::int32_t r = 0; r < rank_.ep.size(); ++r)
      mine.each.push_back(share_of(counts[static_cast<std::size_t>(r)], tp, r % tp).count);
    const std::int64_t most = *std::max_element(mine.each.begin(), mine.each.end());
    require(capacity == 0 || most <= capacity, "dispatch: {} tokens of a rank are more than the capacity, {}", most,
            capacity);
    mine.capacity = std::max(most, capacity);
    mine.row = row;
    mine.sums = problem_.experts_sum() ||
                combine_form(StrategyKind::mc2, problem_.dtype, problem_.wire) == CombineForm::partial_sums;
    mine.weighted = weights && (mine.sums || problem_.experts_weight());
    WorkspaceLayout sizes;
    mine.ids = sizes.add(DType::i32, {mine.each[static_cast<std::size_t>(rank_.ep.rank())], problem_.top_k});
  }

  void choose_windows() {
    windows_ = pulled_.get();
    if (put_ == nullptr || mine_.capacity == 0) return;
    if (put_windows_fit(rank_, problem_, mine_)) {
      windows_ = put_.get();
    } else if (!told_) {
      told_ = true;
      rank_.ep.rank_stream().context->log(
          LogLevel::warning,
          fmt::format("mc2: slabs of {} tokens of each of {} ranks do not fit the {} bytes of a peer window: they are "
                      "pulled",
                      mine_.capacity, rank_.ep.size(), PutWindow::max_bytes(rank_.ep)));
    }
  }

  ExpertRank rank_;
  ExpertProblem problem_;
  StepMemory& step_memory_;
  std::unique_ptr<Mc2Windows> pulled_, put_;
  Outbox outbox_;
  Mc2Windows* windows_ = nullptr;  ///< of this step
  bool told_ = false;
  // Between the steps.
  BufferView memory_;
  std::optional<Layout> layout_;
  Mc2Tokens mine_;
  Mc2Received received_;
  expert_sort::Args in_order_;
  WireRows came_home_;
  TensorView home_weights_, share_out_, sums_;
  bool reduce_ = true;
};

}  // namespace

std::unique_ptr<Strategy> make_mc2(const ExpertRank& rank, const ExpertProblem& problem, StepMemory& memory) {
  return std::make_unique<Mc2>(rank, problem, memory);
}

}  // namespace moecl
